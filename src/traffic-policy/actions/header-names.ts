import type { ActionContext } from '../action-context.ts';
import { headerBytes, isHeaderText } from '../header-text.ts';
import { PolicyFailure } from '../policy-failure.ts';
import { refusal } from '../policy-refused.ts';
import type { PolicyScope } from '../policy-subjects.ts';
import type { Template } from '../templates.ts';

/**
 * Headers that decide where a message ends or what becomes of the connection. Our own edge writes
 * them; a policy that could would be able to smuggle requests.
 */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/**
 * @returns the name in lower case
 * @throws {PolicyRefused} for a header that no policy may touch
 */
export function configurableName(name: string): string {
  const lower = name.toLowerCase();
  if (lower === 'ngrok-error-code') throw refusal('ERR_NGROK_2219', `${name} is the edge's own`);
  if (!OF_THE_CONNECTION.has(lower)) return lower;
  throw refusal('ERR_NGROK_2219', `${name} belongs to the connection and cannot be changed`);
}

/** Headers that an action sets, whose values may hold `${…}`. */
export class HeaderTemplates {
  readonly #templates: readonly (readonly [name: string, value: Template])[];
  /** A flat name, value list, the values as bytes, when nothing is to be replaced; null when something is. */
  readonly constant: readonly string[] | null;

  constructor(templates: readonly (readonly [string, Template])[]) {
    this.#templates = templates;
    const flat = templates.flatMap(([name, { constant }]) => (constant === null ? [] : [name, headerBytes(constant)]));
    this.constant = flat.length === templates.length * 2 ? flat : null;
  }

  has(name: string): boolean {
    return this.#templates.some(([each]) => each === name);
  }

  /**
   * @returns a flat name, value list, the values as bytes
   * @throws {PolicyFailure} when a value is nothing that a header can carry
   */
  flat(scope: PolicyScope): readonly string[] {
    return this.#templates.flatMap(([name, template]) => {
      const value = template.text(scope);
      if (isHeaderText(value)) return [name, headerBytes(value)];
      throw new PolicyFailure('ERR_NGROK_3900', `the value of ${name} holds a character that a header cannot carry`);
    });
  }
}

/**
 * @param headers as a policy has them, values being text or scalars
 * @throws {PolicyRefused} for a name that no policy may touch, a wrong expression, and what no header can carry
 */
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
      throw refusal('ERR_NGROK_2211', 'holds a character that a header cannot carry', field);
    }),
  );
}
