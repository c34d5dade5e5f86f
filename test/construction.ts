/**
 * Reads constructors with the TypeScript compiler: a class must make its parts from the ground up, so that no
 * part is given anything that is made after it.
 */
import { ts } from 'ts-morph';

/** A place in the order in which an object is made: field initializers first, then the constructor's body. */
type Moment = number;

/** A `new X(...)` in a constructor or in a field initializer. */
interface Making {
  expression: ts.NewExpression;
  /** Moment of the making: fields that are assigned from then on do not exist yet. */
  at: Moment;
}

class ConstructorReader {
  /** Field -> when it is first assigned. Fields that only methods assign are not in it. */
  private readonly assigned = new Map<string, Moment>();
  /** Local of the constructor -> when it is declared. */
  private readonly locals = new Map<string, Moment>();
  /** Bodies of methods and accessors: an argument that names one names all that its body names. */
  private readonly bodies = new Map<string, ts.Node[]>();
  private readonly makings: Making[] = [];
  private readonly problems: string[] = [];
  private moment: Moment = 0;

  constructor(
    private readonly file: string,
    private readonly declaration: ts.ClassLikeDeclaration,
  ) {}

  read(): string[] {
    const { members } = this.declaration;
    for (const member of members) {
      const isBody = ts.isMethodDeclaration(member) || ts.isAccessor(member);
      if (!isBody || !member.body || isStatic(member)) continue;
      const name = member.name.getText();
      this.bodies.set(name, [...(this.bodies.get(name) ?? []), member.body]);
    }
    const maker = members.find(ts.isConstructorDeclaration);
    for (const parameter of maker?.parameters ?? [])
      if (ts.isParameterPropertyDeclaration(parameter, maker!)) this.assign(parameter.name.getText());
    for (const member of members) {
      if (!ts.isPropertyDeclaration(member) || isStatic(member) || !member.initializer) continue;
      // A function that is a field is called later, as a method is.
      if (isFunction(member.initializer)) this.bodies.set(member.name.getText(), [member.initializer]);
      else {
        this.step(member.initializer);
        this.assign(member.name.getText());
      }
    }
    for (const statement of maker?.body?.statements ?? []) this.step(statement);
    for (const making of this.makings) this.check(making);
    return [...new Set(this.problems)];
  }

  private assign(field: string): void {
    if (!this.assigned.has(field)) this.assigned.set(field, this.moment);
    this.moment++;
  }

  /** Follows a statement or initializer in the order in which it runs. A closure runs later. */
  private step(node: ts.Node): void {
    if (isFunction(node)) return;
    if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.EqualsToken) {
      this.step(node.right);
      const field = fieldOf(node.left);
      if (field !== undefined) this.assign(field);
      else if (ts.isPropertyAccessExpression(node.left) && isFunction(node.right)) this.hung(node.left);
      return;
    }
    if (ts.isVariableDeclaration(node)) {
      if (node.initializer) this.step(node.initializer);
      if (node.initializer?.kind === ts.SyntaxKind.ThisKeyword && ts.isIdentifier(node.name))
        this.tell(`calls itself ${node.name.text}`);
      for (const name of namesIn(node.name)) this.locals.set(name, this.moment);
      this.moment++;
      return;
    }
    ts.forEachChild(node, (child) => this.step(child));
    if (ts.isNewExpression(node)) this.makings.push({ expression: node, at: this.moment });
  }

  /** A part is given a closure after it was made. */
  private hung(target: ts.PropertyAccessExpression): void {
    this.tell(`sets ${target.getText()} of a part that is made`);
  }

  private check({ expression, at }: Making): void {
    const made = `new ${expression.expression.getText()}`;
    const given = new Given(this.bodies);
    for (const argument of expression.arguments ?? []) given.look(argument);
    if (given.self) this.tell(`${made} is given this`);
    for (const field of given.fields) {
      const when = this.assigned.get(field);
      if (when !== undefined && when >= at) this.tell(`${made} names this.${field}, which is made later`);
    }
    for (const local of given.names) {
      const when = this.locals.get(local);
      if (when !== undefined && when >= at) this.tell(`${made} names ${local}, which is made later`);
    }
  }

  private tell(problem: string): void {
    this.problems.push(`${this.file}: ${this.declaration.name?.text ?? 'a class'}: ${problem}`);
  }
}

/** The names in arguments of a making, also in closures and in methods of the class that they call. */
class Given {
  readonly fields = new Set<string>();
  readonly names = new Set<string>();
  /** True: `this` itself is an argument. */
  self = false;
  private readonly seen = new Set<string>();

  constructor(private readonly bodies: ReadonlyMap<string, readonly ts.Node[]>) {}

  /** `inBody`: of a method, whose names are no locals of the constructor. */
  look(node: ts.Node, inBody = false): void {
    const field = fieldOf(node);
    if (field !== undefined) return this.note(field);
    if (node.kind === ts.SyntaxKind.ThisKeyword) {
      if (!inBody) this.self = true;
      return;
    }
    if (ts.isIdentifier(node)) {
      if (!inBody && !isLabel(node)) this.names.add(node.text);
      return;
    }
    // `const { a, b } = this` names the fields a and b.
    if (ts.isVariableDeclaration(node) && node.initializer?.kind === ts.SyntaxKind.ThisKeyword) {
      if (!ts.isObjectBindingPattern(node.name)) this.self ||= !inBody;
      else
        for (const { propertyName, name } of node.name.elements) this.note((propertyName ?? name).getText());
      return;
    }
    // The `this` of a plain function, or of a method of an object that is given, is another one.
    const isOther = ts.isMethodDeclaration(node) || ts.isAccessor(node);
    if (isOther || ts.isFunctionDeclaration(node) || ts.isFunctionExpression(node)) return;
    ts.forEachChild(node, (child) => this.look(child, inBody));
  }

  private note(field: string): void {
    this.fields.add(field);
    if (this.seen.has(field)) return;
    this.seen.add(field);
    for (const body of this.bodies.get(field) ?? []) this.look(body, true);
  }
}

function isStatic(member: ts.ClassElement): boolean {
  return (ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Static) !== 0;
}

function isFunction(node: ts.Node): boolean {
  return ts.isArrowFunction(node) || ts.isFunctionExpression(node) || ts.isFunctionDeclaration(node);
}

/** The x of `this.x`. */
function fieldOf(node: ts.Node): string | undefined {
  const isField = ts.isPropertyAccessExpression(node) && node.expression.kind === ts.SyntaxKind.ThisKeyword;
  return isField ? node.name.text : undefined;
}

/** The identifier names a property, and no variable: `a.HERE`, or `{ HERE: a }`. */
function isLabel(node: ts.Identifier): boolean {
  const { parent } = node;
  return (
    (ts.isPropertyAccessExpression(parent) && parent.name === node) ||
    (ts.isPropertyAssignment(parent) && parent.name === node)
  );
}

function namesIn(name: ts.BindingName): string[] {
  if (ts.isIdentifier(name)) return [name.text];
  return name.elements.flatMap((element) => (ts.isBindingElement(element) ? namesIn(element.name) : []));
}

/** The problems of all classes in a file, each as `file: Class: problem`. */
export function constructionProblems(file: string, source: string): string[] {
  const problems: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isClassLike(node)) problems.push(...new ConstructorReader(file, node).read());
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true));
  return problems;
}
