/** Activities of the channels example. */
export const store_clicks = async ({ number }: { number: number }): Promise<string> => `${number} clicks stored`;
