import { type CelValue, isCelError, plan } from '@bufbuild/cel';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { PolicyFailure } from '../policy-errors.ts';
import { chargeForPatterns } from '../regular-expression.ts';
import { Budget } from './budget.ts';
import { checkExpression, type Declarations, type Findings } from './check-expression.ts';
import { ENVIRONMENT } from './environment.ts';
import { type EvaluationContext, evaluateIn, UNKNOWN_SECRET } from './evaluation.ts';
import { parseExpression } from './syntax.ts';

export class Expression {
  readonly text: string;
  readonly findings: Findings;
  readonly #plan: ReturnType<typeof plan>;

  constructor(text: string, findings: Findings, planned: ReturnType<typeof plan>) {
    this.text = text;
    this.findings = findings;
    this.#plan = planned;
  }

  /**
   * @throws {ExpressionError} when it has no value, for example because a key is missing or types do not match
   * @throws {PolicyFailure} when it reads a secret that it cannot have, or the phase exceeds its computing time
   */
  evaluate(context: EvaluationContext): CelValue {
    const { budget } = context;
    // Loops and functions charge the rest themselves.
    budget.spend(this.text.length);
    const value = evaluateIn(context, this.#plan);
    if (!isCelError(value)) return value;
    // The cause is dropped: it may quote the request.
    const problem = withoutValues(value.message, this.text);
    // A rule that rejects clients without the secret must not be skipped when there is none.
    if (problem.startsWith(UNKNOWN_SECRET)) throw new PolicyFailure('ERR_NGROK_3900', problem);
    throw budget.isExhausted ? new PolicyFailure('ERR_NGROK_2300', problem) : new ExpressionError(problem);
  }
}

/** Raised when an expression has no value for this request. */
export class ExpressionError extends Error {
  /** @param message for the gateway's log; quotes nothing of the request */
  constructor(message: string) {
    super(message);
    this.name = 'ExpressionError';
  }
}

/** Words in the library's messages that name types and notations. */
const VALUE_FREE = /^(?:found no matching overload|type mismatch|invalid argument to function|Failed to parse)/;

/**
 * Removes values of the request from a message: they may be passwords or tokens, which must not reach a log. Keeps a
 * quotation, and text after a colon, only when it is part of the expression.
 */
function withoutValues(problem: string, text: string): string {
  if (VALUE_FREE.test(problem)) return problem;
  const known = (whole: string, value: string, instead: string) => (text.includes(value) ? whole : instead);
  return problem
    .replace(/^Cannot convert .* to a BigInt$/s, 'not a whole number')
    .replace(/(['"`])(.*)\1/gs, (whole: string, _, quoted: string) => known(whole, quoted, '…'))
    .replace(/: (.*)$/s, (whole: string, rest: string) => known(whole, rest, ': …'));
}

const CACHED = 1000;
/** Parts of a cached expression: larger ones would fill the memory with expressions that nobody uses any more. */
const MAX_CACHED_NODES = 100;

const EXPRESSION_BYTES = 1000;
const NODE_BYTES = 150;

/** After an outage all agents reconnect at once, most with the same policies. */
const cache = new Map<Declarations, BoundedMap<string, Expression>>();

/**
 * @param patterns the budget for its patterns; cached ones cost the same, so that the result does not depend on the cache
 * @param onCompiled called with the bytes that a new expression takes; equal ones share it
 * @throws {PolicyRefused} when it is not CEL, or uses unknown functions or variables
 */
export function compileExpression(
  text: string,
  declarations: Declarations,
  patterns = new Budget(),
  onCompiled = (_bytes: number) => {},
): Expression {
  const known = cache.get(declarations) ?? new BoundedMap<string, Expression>(CACHED);
  cache.set(declarations, known);
  let expression = known.get(text);
  if (expression) chargeForPatterns(expression.findings.patternCost, patterns);
  else {
    const tree = parseExpression(text);
    const findings = checkExpression(tree, declarations, patterns);
    expression = new Expression(text, findings, plan(ENVIRONMENT, tree));
    if (findings.nodes <= MAX_CACHED_NODES) known.set(text, expression);
    onCompiled(EXPRESSION_BYTES + findings.nodes * NODE_BYTES);
  }
  return expression;
}
