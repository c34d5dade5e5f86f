/** The code that a call throws; `none` when it throws nothing. */
export function codeOf(call: () => unknown, none = 'nothing was thrown'): string {
  try {
    call();
  } catch (error) {
    const { code } = error as { code?: unknown };
    return typeof code === 'string' ? code : `an error without a code: ${error}`;
  }
  return none;
}
