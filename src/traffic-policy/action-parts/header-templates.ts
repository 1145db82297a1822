import { CONNECTION_HEADERS } from '../../lib/http/header-fields.ts';
import type { ActionContext } from '../action-context.ts';
import { headerBytes, isHeaderText } from '../header-text.ts';
import { bytesOfHeaders } from '../kept-values.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import type { Template } from '../templates.ts';

/**
 * Only the edge writes headers of the connection: a policy could smuggle requests.
 *
 * @returns the name in lower case
 * @throws {PolicyRefused} for a header that policies cannot change
 */
export function configurableName(name: string): string {
  const lower = name.toLowerCase();
  if (lower === 'ngrok-error-code') throw refusal('ERR_NGROK_2219', `${name} is reserved for the edge`);
  if (!CONNECTION_HEADERS.has(lower)) return lower;
  throw refusal('ERR_NGROK_2219', `${name} belongs to the connection and cannot be changed`);
}

export class HeaderTemplates {
  readonly #templates: readonly (readonly [name: string, value: Template])[];
  /** Alternating names and values, the values as bytes; null when a value depends on the request. */
  readonly constant: readonly string[] | null;

  /** Lower case. */
  readonly names: ReadonlySet<string>;

  constructor(templates: readonly (readonly [string, Template])[]) {
    this.#templates = templates;
    this.names = new Set(templates.map(([name]) => name));
    const flat = templates.flatMap(([name, { constant }]) => (constant === null ? [] : [name, headerBytes(constant)]));
    this.constant = flat.length === templates.length * 2 ? flat : null;
  }

  /** @throws {PolicyFailure} when a header cannot carry a value */
  flat(scope: PolicyScope): readonly string[] {
    return this.#templates.flatMap(([name, template]) => {
      const value = template.text(scope);
      if (isHeaderText(value)) return [name, headerBytes(value)];
      throw new PolicyFailure('ERR_NGROK_3900', `the value of ${name} has a character that a header cannot carry`);
    });
  }

  /** As {@link flat}, for headers that the request or its response keeps. @throws {PolicyFailure} also when they take too much */
  lasting(scope: PolicyScope): readonly string[] {
    const headers = this.flat(scope);
    scope.hold(bytesOfHeaders(headers), 'response');
    return headers;
  }
}

/** @throws {PolicyRefused} for a header that policies cannot change, an invalid expression or an invalid value */
export function headerTemplates(
  headers: Record<string, string | number | boolean>,
  context: ActionContext,
): HeaderTemplates {
  return new HeaderTemplates(
    Object.entries(headers).map(([name, value]) => {
      const field = `config.headers.${name}`;
      const template = context.template(String(value), field);
      if (template.parts.every((part) => typeof part !== 'string' || isHeaderText(part))) {
        return [configurableName(name), template] as const;
      }
      throw refusal('ERR_NGROK_2211', 'has a character that a header cannot carry', field);
    }),
  );
}
