import { hyphenated, nameAt, valueAt } from '../../lib/http/header-fields.ts';
import { RemoveHeadersConfig } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { configurableName } from '../action-parts/header-templates.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import type { PreparedAction } from '../steps.ts';

/** Removes headers, in any case of their names, and those that upstreams could take for them: with underscores. */
export function removeHeaders(config: unknown, context: ActionContext): PreparedAction {
  const names = new Set(parseConfig(RemoveHeadersConfig, config).headers.map(configurableName));
  const lookalikes = new Set([...names].map(hyphenated));
  const removeFrom = (request: PolicyRequest, headers: string[]) => {
    const removed = remove(headers, { names, lookalikes }, context.policy.results.size > 0);
    request.scope?.changed();
    if (removed) context.record(request, 'remove_headers', { headers_removed: [...removed] });
    return undefined;
  };
  return {
    ends: false,
    on_http_request: () => {
      if (names.has('host'))
        throw refusal('ERR_NGROK_2219', 'cannot remove host: every request needs it', 'config.headers');
      return (request) => removeFrom(request, request.headers);
    },
    on_http_response: () => (request, response) => removeFrom(request, response.headers),
  };
}

interface Removed {
  readonly names: ReadonlySet<string>;
  /** The names as others would spell them with hyphens. */
  readonly lookalikes: ReadonlySet<string>;
}

function remove(headers: string[], { names, lookalikes }: Removed, collect: boolean): Set<string> | null {
  const removed = collect ? new Set<string>() : null;
  let kept = 0;
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at);
    const lower = name.toLowerCase();
    if (names.has(lower) || (lower.includes('_') && lookalikes.has(hyphenated(lower)))) {
      removed?.add(lower);
      continue;
    }
    headers[kept++] = name;
    headers[kept++] = valueAt(headers, at);
  }
  headers.length = kept;
  return removed;
}
