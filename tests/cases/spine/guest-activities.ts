/** Activities of the cases that run on the compiled executable. */

/** Its JSON, quotes included, has so many bytes. */
export const blob = (bytes: number): string => "x".repeat(bytes - 2);

export const measure = (text: string): number => text.length;
