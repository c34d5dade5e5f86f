/** The source text of TypeScript that is code: comments say what they like. */

const TOKENS = /\/\*[\s\S]*?\*\/|\/\/[^\n]*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`/g;

/** Without comments. */
export function withoutComments(source: string): string {
  return source.replace(TOKENS, (token) => (token.startsWith('/') ? ' ' : token));
}

/** Without comments, and without what strings say: only code can break a rule. */
export function codeOnly(source: string): string {
  return source.replace(TOKENS, (token) => {
    if (token.startsWith('/')) return ' ';
    // What a template computes is code.
    return token.startsWith('`')
      ? [...token.matchAll(/\$\{([^}]*)\}/g)].map((match) => match[1]).join(' ')
      : "''";
  });
}
