export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Milliseconds that are evenly distributed between two. `random` gives numbers of 32 bits. */
export function between(random: () => number, least: number, most: number): number {
  return least + ((most - least) * random()) / 0x1_0000_0000;
}
