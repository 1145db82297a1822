import type { Stepwise } from '../lib/stepwise.ts';
import { ActionContext, type PolicyContext, timeFor } from './action-context.ts';
import { prepareAction } from './actions/actions.ts';
import { type Expression, ExpressionError } from './cel/expression.ts';
import { PHASES, type Phase, type RulesByPhase } from './document.ts';
import { type ProblemList, refusal } from './policy-errors.ts';
import type { Subject } from './policy-subjects.ts';
import type { RawRule } from './policy-text.ts';
import type { RecordedRule } from './rule-record.ts';
import { type OutcomeKind, type PlacedStep, type PreparedAction, sequence } from './steps.ts';

/** Rules from an endpoint's other options, which run before and after those of its policy. */
export interface PolicyFrame {
  readonly before: RulesByPhase<RawRule>;
  readonly after: RulesByPhase<RawRule>;
}

export function framed(rules: RulesByPhase<RawRule>, frame: PolicyFrame | undefined): RulesByPhase<RawRule> {
  if (isEmptyFrame(frame)) return rules;
  const all: RulesByPhase<RawRule> = {};
  for (const phase of PHASES) {
    all[phase] = [...(frame?.before[phase] ?? []), ...(rules[phase] ?? []), ...(frame?.after[phase] ?? [])];
  }
  return all;
}

export function isEmptyFrame(frame: PolicyFrame | undefined): boolean {
  return PHASES.every((phase) => !frame?.before[phase]?.length && !frame?.after[phase]?.length);
}

export interface PhaseCompiler<S extends Subject, Response, Result> {
  readonly phase: Phase;
  readonly kind: OutcomeKind<Result>;
  /** Selects the action's step for this phase; undefined when the phase does not support the action. */
  maker(action: PreparedAction): (() => (subject: S, response: Response) => Result | undefined) | undefined;
  /** Selects what the action does with subjects that its rule excludes; omitted: nothing. */
  excluded?(action: PreparedAction): ((subject: S, response: Response) => Result | undefined) | undefined;
  fail(place: string, error: unknown): Result;
}

export function* compileRules<S extends Subject, Response, Result>(
  rules: readonly RawRule[],
  compiler: PhaseCompiler<S, Response, Result>,
  policy: PolicyContext,
  problems: ProblemList,
): Stepwise<PlacedStep<S, Response, Result>[]> {
  const around = <T>(subject: Subject, work: () => T) => timeFor(subject, policy.ports).run(work);
  const compiled: PlacedStep<S, Response, Result>[] = [];
  for (const rule of rules) {
    const recorded = { phase: compiler.phase, place: rule.place, name: rule.name ?? null };
    const conditions = yield* compileConditions(rule, recorded, policy, problems);
    const steps = yield* compileActions(rule, recorded, compiler, policy, problems);
    if (rule.expressions.length === 0) compiled.push(...steps);
    else {
      const run = sequence(steps, compiler.kind, compiler.fail, around);
      const excluded = steps.find((step) => step.excluded !== undefined)?.excluded;
      compiled.push({
        place: rule.place,
        action: null,
        run: (subject, response) => (conditions.hold(subject) ? run(subject, response) : excluded?.(subject, response)),
      });
    }
  }
  return compiled;
}

function* compileActions<S extends Subject, Response, Result>(
  rule: RawRule,
  recorded: RecordedRule,
  compiler: PhaseCompiler<S, Response, Result>,
  policy: PolicyContext,
  problems: ProblemList,
): Stepwise<PlacedStep<S, Response, Result>[]> {
  const steps: PlacedStep<S, Response, Result>[] = [];
  for (const [at, action] of rule.actions.entries()) {
    const place = `${rule.place}.actions[${at}]`;
    const step = problems.within(place, () => {
      const prepared = prepareAction(action, new ActionContext(compiler.phase, place, policy));
      const make = compiler.maker(prepared);
      if (!make) throw refusal('ERR_NGROK_2202', `${action.type} is not supported in ${compiler.phase}`, 'type');
      if (prepared.ends && at < rule.actions.length - 1) {
        throw refusal('ERR_NGROK_2207', `${action.type} ends the rule: the actions after it can never run`);
      }
      return { run: make(), excluded: compiler.excluded?.(prepared) };
    });
    if (step) steps.push({ place, action: { rule: recorded, type: action.type }, ...step });
    yield;
  }
  return steps;
}

interface Conditions {
  hold(subject: Subject): boolean;
}

function* compileConditions(
  rule: RawRule,
  recorded: RecordedRule,
  policy: PolicyContext,
  problems: ProblemList,
): Stepwise<Conditions> {
  const context = new ActionContext(recorded.phase, rule.place, policy);
  const expressions: Expression[] = [];
  for (const [at, text] of rule.expressions.entries()) {
    const expression = problems.within(rule.place, () => context.expression(text, `expressions[${at}]`));
    if (expression) expressions.push(expression);
    yield;
  }
  warnOfMissingKeys(expressions, context);
  return {
    hold: (subject) => {
      const scope = context.scopeOf(subject);
      for (let at = 0; at < expressions.length; at++) {
        try {
          if (expressions[at]?.evaluate(scope) !== true) return false;
        } catch (error) {
          // Examples of ngrok's documentation read headers that may be missing: no match rather than a failure.
          if (!(error instanceof ExpressionError)) {
            subject.record?.began(recorded);
            throw error;
          }
          policy.reportTrouble(`${rule.place}.expressions[${at}]`, 'ERR_NGROK_2254', error.message);
          return false;
        }
      }
      return true;
    },
  };
}

/** A rule that does not match because a header is missing may be the one that should reject the request. */
function warnOfMissingKeys(expressions: readonly Expression[], context: ActionContext): void {
  const guarded = new Set(expressions.flatMap(({ findings }) => [...findings.guarded]));
  for (const [at, { findings }] of expressions.entries()) {
    for (const name of findings.indexed) {
      if (guarded.has(name)) continue;
      context.warn(
        `expressions[${at}]: the rule does not match when ${name} lacks the key; check 'key' in ${name} first`,
      );
    }
  }
}
