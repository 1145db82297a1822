import { type CelInput, celList, celMap } from '@bufbuild/cel';
import type { Budget } from './cel/budget.ts';
import type { Declarations } from './cel/check-expression.ts';
import { compileExpression, type Expression } from './cel/expression.ts';
import { outline } from './cel/syntax.ts';
import { celOf } from './cel/values.ts';
import type { Phase } from './document.ts';
import { atPlace, refusal } from './policy-errors.ts';
import type { EndpointProtocol, PolicyScope, Subject } from './policy-subjects.ts';
import type { PolicyPorts } from './ports.ts';
import { requireQuickPatterns } from './regular-expression.ts';
import { SubjectScope } from './scope/subject-scope.ts';
import type { ProcessorTime } from './state/processor-time.ts';
import type { PreparedAction } from './steps.ts';
import { parseTemplate, type Template } from './templates.ts';

const MAX_NESTING = 10;

/** The variables that come from databases of addresses. */
const ADDRESS_VARIABLE = /\bconn\.(?:(?:client_ip|server_ip)\.)?(geo|as)\b/g;

/** Reports a failure at most once a minute for each place: a mistake in a policy fails at every request. */
export type ReportTrouble = (place: string, code: string, message: string, cause?: unknown) => void;

/** All `${…}` of an action are compiled without a pause, which may take 20 ms. */
const MAX_INSERTIONS = 100;
const MAX_PARTS = 1_000;

export interface PolicyContext {
  readonly ports: PolicyPorts;
  readonly protocol: EndpointProtocol;
  /** Whether something other than the policy sets how TLS is terminated. */
  readonly fixedTermination: boolean;
  readonly declarations: Readonly<Record<Phase, Declarations>>;
  /** Results of actions that expressions read so far; when they read none, actions record nothing. */
  readonly results: Set<string>;
  readonly patterns: Budget;
  memory: number;
  readonly dynamicPhases: Set<Phase>;
  /** Names that set-vars sets in each phase, up to the rule being compiled. */
  readonly vars: Readonly<Record<Phase, Set<string>>>;
  readonly reportTrouble: ReportTrouble;
  /** Reports what is valid but probably a mistake. */
  warn(place: string, message: string): void;
}

/** Prepares an action; throws {@link PolicyRefused} when its configuration is invalid. */
export type PrepareAction = (config: unknown, context: ActionContext) => PreparedAction;

export class ActionContext {
  readonly #inserted = { insertions: 0, parts: 0, patternCost: 0 };

  constructor(
    readonly phase: Phase,
    readonly place: string,
    readonly policy: PolicyContext,
  ) {}

  get ports(): PolicyPorts {
    return this.policy.ports;
  }

  expression(text: string, field: string, declarations = this.policy.declarations[this.phase]): Expression {
    return atPlace(field, () => {
      this.policy.dynamicPhases.add(this.phase);
      const expression = compileExpression(text, declarations, this.policy.patterns, (bytes) => {
        this.policy.memory += bytes;
      });
      this.#warnOfAddresses(text);
      for (const name of expression.findings.results) this.policy.results.add(name);
      for (const name of expression.findings.vars) {
        if (!this.policy.vars[this.phase].has(name)) {
          throw refusal('ERR_NGROK_2200', `unknown variable vars.${name}: no earlier set-vars of this phase sets it`);
        }
      }
      return expression;
    });
  }

  /** Without a database, such a variable is empty: a rule that should reject clients never does. */
  #warnOfAddresses(text: string): void {
    const { knowledge } = this.ports;
    if (knowledge === null) return;
    for (const [, kind] of text.matchAll(ADDRESS_VARIABLE)) {
      const [isThere, setting, what] =
        kind === 'as'
          ? [knowledge.databases.as, 'GATEWAY_ASN_DATABASE', 'networks']
          : [knowledge.databases.geo, 'GATEWAY_GEO_DATABASE', 'locations'];
      if (!isThere) this.warn(`reads ${what} of addresses, which are empty without a database; set ${setting}`);
    }
  }

  template(text: string, field: string): Template {
    return atPlace(field, () => parseTemplate(text, (expression) => this.#insertion(expression)));
  }

  #insertion(text: string): Expression {
    const sum = this.#inserted;
    sum.insertions++;
    sum.parts += outline(text).parts;
    if (sum.insertions > MAX_INSERTIONS || sum.parts > MAX_PARTS) {
      const problem = `the action has more than ${MAX_INSERTIONS} \${…}, or they have more than ${MAX_PARTS} parts together`;
      throw refusal('ERR_NGROK_2224', problem);
    }
    const expression = this.expression(text, '');
    sum.patternCost += expression.findings.patternCost;
    requireQuickPatterns(sum.patternCost);
    return expression;
  }

  /** Compiles a value in which every string, at any depth, is a template. */
  value(value: unknown, field: string, depth = 0): (scope: PolicyScope) => CelInput {
    if (depth > MAX_NESTING) throw refusal('ERR_NGROK_2250', `is nested more than ${MAX_NESTING} deep`, field);
    if (typeof value === 'string') {
      const template = this.template(value, field);
      return (scope) => template.value(scope);
    }
    if (Array.isArray(value)) {
      const elements = value.map((element, at) => this.value(element, `${field}[${at}]`, depth + 1));
      return (scope) => celList(elements.map((element) => element(scope)));
    }
    if (typeof value === 'object' && value !== null) {
      const members = Object.entries(value).map(
        ([name, member]) => [name, this.value(member, `${field}.${name}`, depth + 1)] as const,
      );
      return (scope) => celMap(new Map(members.map(([name, member]) => [name, member(scope)])));
    }
    const constant = celOf(value);
    return () => constant;
  }

  scopeOf(subject: Subject): PolicyScope {
    return scopeOf(subject, this.ports);
  }

  timeFor(subject: Subject): ProcessorTime {
    return timeFor(subject, this.ports);
  }

  record(subject: Subject, action: string, result: object): void {
    if (this.policy.results.size > 0) this.scopeOf(subject).setResult(action, result);
  }

  /** Whether an expression reads a result, something within it, or a whole that contains it. Known once all are compiled. */
  readsResult(name: string): boolean {
    for (const read of this.policy.results) {
      if (read === name || name.startsWith(`${read}.`) || read.startsWith(`${name}.`)) return true;
    }
    return false;
  }

  trouble(code: string, message: string): void {
    this.policy.reportTrouble(this.place, code, message);
  }

  warn(message: string): void {
    this.policy.warn(this.place, message);
  }
}

/** @returns the subject's scope, created on first use */
export function scopeOf(subject: Subject, ports: PolicyPorts): PolicyScope {
  subject.scope ??= new SubjectScope(ports, subject.connection, subject.endpoint, 'method' in subject ? subject : null);
  return subject.scope;
}

/** @returns what pays for work on the subject: the share of its client's network */
export function timeFor({ connection }: Subject, ports: PolicyPorts): ProcessorTime {
  return ports.processorTime.shareOf(connection);
}
