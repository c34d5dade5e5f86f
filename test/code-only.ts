/**
 * The part of a TypeScript source that is code, for tests of rules that comments and strings cannot break.
 */

const TOKENS = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g;

/** The source without comments. */
export function withoutComments(source: string): string {
  return source.replace(TOKENS, (token) => (token.startsWith('/') ? ' ' : token));
}

/** The source without comments, and without the content of strings. */
export function codeOnly(source: string): string {
  return source.replace(TOKENS, (token) => {
    if (token.startsWith('/')) return ' ';
    // Expressions inside of templates are code.
    return token.startsWith('`')
      ? [...token.matchAll(/\$\{([^}]*)\}/g)].map((match) => match[1]).join(' ')
      : "''";
  });
}
