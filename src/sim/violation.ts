/** A guarantee that did not hold. */
export class Violation extends Error {}
