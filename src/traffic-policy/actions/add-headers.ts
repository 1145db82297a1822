import { hyphenated, nameAt, valueAt } from '../../lib/http/header-fields.ts';
import { AddHeadersConfig } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { headerTemplates } from '../action-parts/header-templates.ts';
import { parseConfig } from '../action-problems.ts';
import { headerText } from '../header-text.ts';
import type { PolicyRequest, Subject } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';

/**
 * Appends headers, but replaces `host`: a request has exactly one. Of a request's other headers, those are removed that
 * upstreams could take for an added one: with underscores.
 */
export function addHeaders(config: unknown, context: ActionContext): PreparedAction {
  const headers = headerTemplates(parseConfig(AddHeadersConfig, config).headers, context);
  const valuesFor = (subject: Subject) => headers.constant ?? headers.lasting(context.scopeOf(subject));
  const done = (request: PolicyRequest, added: readonly string[]) => {
    request.scope?.changed();
    if (context.policy.results.size > 0) context.record(request, 'add_headers', { headers_added: asMap(added) });
    return undefined;
  };
  return {
    ends: false,
    on_http_request: () => {
      const append = headers.names.has('host') ? appendWithHost : appendAll;
      const lookalikes = new Set([...headers.names].map(hyphenated));
      return (request) => {
        const added = valuesFor(request);
        removeLookalikes(request.headers, headers.names, lookalikes);
        append(request.headers, added);
        return done(request, added);
      };
    },
    on_http_response: () => (request, response) => {
      const added = valuesFor(request);
      appendAll(response.headers, added);
      return done(request, added);
    },
  };
}

function removeLookalikes(headers: string[], names: ReadonlySet<string>, lookalikes: ReadonlySet<string>): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    const name = nameAt(headers, at);
    if (!name.includes('_')) continue;
    const lower = name.toLowerCase();
    if (lookalikes.has(hyphenated(lower)) && !names.has(lower)) headers.splice(at, 2);
  }
}

/** A plain loop: an iterator or spreading the list would be the slowest part of the default policy. */
function appendAll(headers: string[], added: readonly string[]): void {
  for (let at = 0; at < added.length; at += 2) headers.push(nameAt(added, at), valueAt(added, at));
}

function appendWithHost(headers: string[], added: readonly string[]): void {
  for (let at = 0; at < added.length; at += 2) {
    if (added[at] === 'host') replaceHost(headers, valueAt(added, at));
    else headers.push(nameAt(added, at), valueAt(added, at));
  }
}

export function replaceHost(headers: string[], value: string): void {
  for (let at = 0; at < headers.length; at += 2) {
    if (nameAt(headers, at).toLowerCase() === 'host') headers[at + 1] = value;
  }
}

function asMap(flat: readonly string[]): Record<string, string> {
  const map: Record<string, string> = {};
  for (let at = 0; at < flat.length; at += 2) map[nameAt(flat, at)] = headerText(valueAt(flat, at));
  return map;
}
