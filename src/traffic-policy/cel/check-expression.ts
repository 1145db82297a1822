import { refusal } from '../policy-errors.ts';
import { checkedPattern, patternCost, requireQuickPatterns } from '../regular-expression.ts';
import type { Budget } from './budget.ts';
import { callProblem, isNamespaced, rootReadBy } from './environment.ts';
import {
  becomeCall,
  type CallExpr,
  type ComprehensionExpr,
  type Expr,
  expandSortBy,
  limitLoop,
  qualifiedName,
  textLiteral,
} from './syntax.ts';

export type VariableKind = 'number' | 'bool';

/** All variables, and those that are available in the phase of the expression. */
export interface Declarations {
  readonly names: ReadonlySet<string>;
  /** Names inside the value of a variable. */
  readonly members: ReadonlySet<string>;
  /** Of the variables that are never text. */
  readonly kinds: ReadonlyMap<string, VariableKind>;
  /** The first parts of the names that are available in this phase. */
  readonly roots: ReadonlySet<string>;
  /** Namespaces whose members are known only when the policy runs. */
  readonly open: ReadonlySet<string>;
  /** Names that cannot have a value yet in this phase of the policy, and why. */
  readonly unknown?: { readonly names: ReadonlySet<string>; readonly why: string };
}

const TYPES: ReadonlySet<string> = new Set([
  'bool',
  'bytes',
  'double',
  'int',
  'list',
  'map',
  'null_type',
  'string',
  'type',
  'uint',
]);

/** A loop in a loop; no policy needs deeper ones. */
const MAX_LOOPS = 2;

/** The library takes almost a millisecond for each. */
const MAX_LOOPS_IN_TOTAL = 20;

/** A deeper tree could exceed the stack, here or when it runs; V8 ends the process when that happens in a pattern. */
const MAX_DEPTH = 700;

/** The cost of an iteration, and of each part of the expression in it, in units of the budget. */
const TURN_COST = 10;
const NODE_COST = 5;

export interface Findings {
  /** Names below `vars.` that must have been set. */
  readonly vars: Set<string>;
  /** Variables that are indexed by a key, which fails when the key is missing. */
  readonly indexed: Set<string>;
  /** Variables that are checked for a key first. */
  readonly guarded: Set<string>;
  /** Names below `actions.` that it reads. */
  readonly results: Set<string>;
  /** The cost of compiling its patterns, in units of a budget. */
  patternCost: number;
  nodes: number;
}

/**
 * Also translates ngrok's macros and deviations into standard CEL.
 *
 * @throws {PolicyRefused} for an unknown function or variable
 */
export function checkExpression(expr: Expr, declarations: Declarations, patterns: Budget): Findings {
  const findings: Findings = {
    ...{ vars: new Set(), indexed: new Set(), guarded: new Set(), results: new Set() },
    patternCost: 0,
    nodes: 0,
  };
  const check = new Check(declarations, findings, patterns);
  check.visit(expr, { bound: new Set(), loops: 0 });
  findings.nodes = check.visited;
  return findings;
}

interface Place {
  readonly bound: ReadonlySet<string>;
  readonly loops: number;
}

class Check {
  visited = 0;
  #depth = 0;
  #loops = 0;

  constructor(
    private readonly declarations: Declarations,
    private readonly findings: Findings,
    private readonly patterns: Budget,
  ) {}

  visit(expr: Expr | undefined, place: Place): void {
    const kind = expr?.exprKind;
    if (expr === undefined || kind === undefined) return;
    this.visited++;
    if (++this.#depth > MAX_DEPTH) {
      throw refusal('ERR_NGROK_2200', `the expression has more than ${MAX_DEPTH} operators in a row`);
    }
    this.#visitKind(expr, kind, place);
    this.#depth--;
  }

  #visitKind(expr: Expr, kind: Expr['exprKind'], place: Place): void {
    switch (kind.case) {
      case 'identExpr':
      case 'selectExpr':
        this.#name(expr, place);
        break;
      case 'callExpr':
        this.#call(expr, kind.value, place);
        break;
      case 'comprehensionExpr':
        this.#loop(kind.value, place);
        break;
      case 'listExpr':
        for (const element of kind.value.elements) this.visit(element, place);
        break;
      case 'structExpr':
        if (kind.value.messageName !== '') throw refusal('ERR_NGROK_2200', `unknown type ${kind.value.messageName}`);
        for (const { keyKind, value } of kind.value.entries) {
          if (keyKind.case === 'mapKey') this.visit(keyKind.value, place);
          this.visit(value, place);
        }
    }
  }

  #name(expr: Expr, place: Place): void {
    const { exprKind: kind } = expr;
    if (kind.case === 'selectExpr' && kind.value.testOnly) {
      this.#has(expr, kind.value, place);
      return;
    }
    const name = qualifiedName(expr);
    const root = name?.split('.', 1)[0] ?? '';
    if (name === null || (place.bound.has(root) && kind.case === 'selectExpr')) {
      if (kind.case === 'selectExpr') this.visit(kind.value.operand, place);
      return;
    }
    if (place.bound.has(root) || (kind.case === 'identExpr' && TYPES.has(name))) return;
    this.#requireVariable(this.#read(expr, root));
  }

  /** @returns the name that is read, in the current spelling */
  #read(expr: Expr, root: string): string {
    this.#requireRoot(root);
    this.#modernize(expr);
    const name = qualifiedName(expr) ?? root;
    if (root === 'actions') this.findings.results.add(name);
    const [, variable] = name.split('.');
    if (root === 'vars' && variable !== undefined) this.findings.vars.add(variable);
    return name;
  }

  #requireRoot(root: string): void {
    if (this.declarations.roots.has(root)) return;
    const elsewhere = root === 'req' || root === 'res';
    throw refusal('ERR_NGROK_2200', elsewhere ? `${root} is not available in this phase` : `unknown variable ${root}`);
  }

  /** Translates the legacy spelling of Go: `req.ContentLength` for `req.content_length`. */
  #modernize(expr: Expr): void {
    const { exprKind: kind } = expr;
    if (kind.case !== 'selectExpr' || kind.value.operand === undefined) return;
    this.#modernize(kind.value.operand);
    const { value: select } = kind;
    if (!/^[A-Z]/.test(select.field)) return;
    const snake = select.field.replace(/([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])/g, '$1$3_$2').toLowerCase();
    if (this.#isDeclared(`${qualifiedName(select.operand)}.${snake}`)) select.field = snake;
  }

  #isDeclared(name: string): boolean {
    const { names } = this.declarations;
    return names.has(name) || [...names].some((each) => each.startsWith(`${name}.`));
  }

  /** A rule that reads what does not exist would never match, and let through what it is there to reject. */
  #requireVariable(name: string): void {
    const { names, members, open, unknown } = this.declarations;
    if (unknown?.names.has(name)) throw refusal('ERR_NGROK_2200', `${name} cannot be known: ${unknown.why}`);
    const parts = name.split('.');
    if (parts.some((_, at) => open.has(parts.slice(0, at + 1).join('.')))) return;
    if (!names.has(name) && !members.has(name)) throw refusal('ERR_NGROK_2200', `unknown variable ${name}`);
  }

  /** Handles `has(a.b)`: the library looks for b in the map a and does not know variables with dotted names. */
  #has(expr: Expr, select: { operand?: Expr | undefined; field: string }, place: Place): void {
    const { operand } = select;
    const root = qualifiedName(operand)?.split('.', 1)[0];
    if (operand === undefined || root === undefined || place.bound.has(root)) {
      this.visit(operand, place);
      return;
    }
    const parent = this.#read(operand, root);
    const name = `${parent}.${select.field}`;
    this.#requireVariable(name);
    this.findings.guarded.add(parent);
    if (this.declarations.names.has(name)) becomeCall(expr, '@has', [textLiteral(name)]);
  }

  #call(expr: Expr, call: CallExpr, place: Place): void {
    if (expandSortBy(call)) {
      this.visit(expr, place);
      return;
    }
    const [first, second] = call.args;
    if (call.function === '_==_' || call.function === '_!=_') {
      numberInText(first, second);
      numberInText(second, first);
    }
    if (call.function === 'has' && call.target === undefined && call.args.length === 1) {
      this.#hasKey(expr, first, place);
      return;
    }
    const space = qualifiedName(call.target);
    const qualified = space === null ? null : `${space}.${call.function}`;
    if (qualified !== null && isNamespaced(qualified)) this.#requireCall(qualified, false, call.args.length);
    else {
      this.#requireCall(call.function, call.target !== undefined, call.args.length, qualified);
      this.visit(call.target, place);
    }
    for (const arg of call.args) this.visit(arg, place);
    if (call.function === '_==_' || call.function === '_!=_') {
      this.#checkComparison(first, second, place);
      this.#checkComparison(second, first, place);
    }
    if (call.function === '@in' && second?.exprKind.case === 'listExpr') {
      for (const element of second.exprKind.value.elements) this.#checkComparison(first, element, place);
    }
    if (call.function === 'matches') this.#checkLiteralPattern(call.args.at(-1));
    if (call.function === '_[_]') this.#checkIndex(first, second, place);
    if (call.function === '@in') this.#noteVariable(this.findings.guarded, second);
    if (call.function === 'size') this.#noteVariable(this.findings.guarded, call.target ?? first);
  }

  /** Rejects an invalid pattern now: it would silently disable its rule. */
  #checkLiteralPattern(pattern: Expr | undefined): void {
    const text = literalText(pattern);
    if (text === null) return;
    this.findings.patternCost += patternCost(text);
    requireQuickPatterns(this.findings.patternCost);
    checkedPattern(text, '', this.patterns);
  }

  /** A rule that compares a number with text would never match, and let through what it is there to reject. */
  #checkComparison(variable: Expr | undefined, literal: Expr | undefined, place: Place): void {
    const kind = literalKind(literal);
    const name = qualifiedName(variable);
    if (kind === null || name === null || place.bound.has(name.split('.', 1)[0] ?? '')) return;
    const expected = this.declarations.kinds.get(name);
    if (expected === undefined || expected === kind) return;
    const isQuoted = kind === 'text' && NUMBER_OR_BOOL[expected].test(literalText(literal) ?? '');
    const advice = isQuoted ? 'remove the quotes' : `compare it with a ${expected}`;
    throw refusal('ERR_NGROK_2200', `${name} is a ${expected} and never equals a ${kind}; ${advice}`);
  }

  #requireCall(name: string, isMethod: boolean, args: number, qualified: string | null = null): void {
    const problem = callProblem(name, isMethod, args);
    if (problem !== null) {
      const hint = qualified?.endsWith('headers.get') ? callProblem('headers.get', false, args) : null;
      throw refusal('ERR_NGROK_2200', hint ?? problem);
    }
    const root = rootReadBy(name);
    if (root !== null && !this.declarations.roots.has(root)) {
      throw refusal('ERR_NGROK_2200', `${name} is not available in this phase`);
    }
  }

  #checkIndex(container: Expr | undefined, key: Expr | undefined, place: Place): void {
    this.#noteVariable(this.findings.indexed, container);
    const name = qualifiedName(container);
    if (name === null || place.bound.has(name.split('.', 1)[0] ?? '')) return;
    const text = literalText(key);
    if (name === 'vars' && text !== null) this.findings.vars.add(text);
    if (/^actions(?:\.ngrok(?:\.terminate_tls)?)?$/.test(name)) {
      throw refusal('ERR_NGROK_2200', `${name} cannot be indexed; write its members with dots`);
    }
  }

  /** Handles `has(m['key'])`, which standard CEL does not allow. */
  #hasKey(expr: Expr, arg: Expr | undefined, place: Place): void {
    const kind = arg?.exprKind;
    if (kind?.case !== 'callExpr' || kind.value.function !== '_[_]') {
      throw refusal('ERR_NGROK_2200', "has() needs a member: has(req.content_length) or has(req.headers['x'])");
    }
    for (const part of kind.value.args) this.visit(part, place);
    this.#noteVariable(this.findings.guarded, kind.value.args[0]);
    becomeCall(expr, '@hasKey', kind.value.args);
  }

  #noteVariable(found: Set<string>, expr: Expr | undefined): void {
    const name = qualifiedName(expr);
    if (name !== null && this.declarations.names.has(name)) found.add(name);
  }

  #loop(loop: ComprehensionExpr, place: Place): void {
    if (++this.#loops > MAX_LOOPS_IN_TOTAL) {
      throw refusal('ERR_NGROK_2200', `the expression has more than ${MAX_LOOPS_IN_TOTAL} loops`);
    }
    this.visit(loop.iterRange, place);
    if (place.loops >= MAX_LOOPS) throw refusal('ERR_NGROK_2200', `loops are nested more than ${MAX_LOOPS} deep`);
    if (this.declarations.roots.has(loop.iterVar)) {
      throw refusal('ERR_NGROK_2200', `${loop.iterVar} is already the name of a variable; choose another name`);
    }
    const inside = { bound: new Set([...place.bound, loop.iterVar, loop.accuVar]), loops: place.loops + 1 };
    const visited = this.visited;
    this.visit(loop.loopStep, inside);
    limitLoop(loop, TURN_COST + (this.visited - visited) * NODE_COST);
  }
}

const NUMBER_OR_BOOL: Readonly<Record<VariableKind, RegExp>> = { number: /^\d+$/, bool: /^(?:true|false)$/ };

function literalKind(expr: Expr | undefined): VariableKind | 'text' | null {
  const kind = expr?.exprKind;
  switch (kind?.case === 'constExpr' ? kind.value.constantKind.case : undefined) {
    case 'stringValue':
      return 'text';
    case 'boolValue':
      return 'bool';
    case 'int64Value':
    case 'uint64Value':
    case 'doubleValue':
      return 'number';
    default:
      return null;
  }
}

/** Numbers are text under their legacy names: in `res.StatusCode == '200'`, the text becomes a number. */
function numberInText(variable: Expr | undefined, literal: Expr | undefined): void {
  const text = literalText(literal);
  if (literal === undefined || text === null || !/^\d{1,9}$/.test(text)) return;
  if (!/^(?:req\.ContentLength|res\.(?:ContentLength|StatusCode))$/.test(qualifiedName(variable) ?? '')) return;
  const { exprKind: kind } = literal;
  if (kind.case === 'constExpr') kind.value.constantKind = { case: 'int64Value', value: BigInt(text) };
}

function literalText(expr: Expr | undefined): string | null {
  const kind = expr?.exprKind;
  if (kind?.case !== 'constExpr' || kind.value.constantKind.case !== 'stringValue') return null;
  return kind.value.constantKind.value;
}
