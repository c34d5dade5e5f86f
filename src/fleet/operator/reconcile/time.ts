/** `ms`: since 1970. Objects have times in seconds. */
export const timeOf = (ms: number): string => new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z');
