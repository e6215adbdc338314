/** Stands in for a model that takes its time, and for the place where an answer goes that nobody waited for. */
export async function think(token: string): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 20 + token.length));
}

export function reroute_store(what: string): string {
  return `stored: ${what}`;
}
