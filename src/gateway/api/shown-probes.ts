import type { EndpointProbe } from '../../management/resources/endpoint.ts';
import { PROBE_STAGES } from '../endpoints/probe-outcome.ts';
import { timestamp } from '../store/store.ts';
import type { ApiContext } from './api-context.ts';

/** What a gateway has found when it asked an endpoint as clients do; null: none has asked, or another one has and nothing is wrong. */
export function probeAt({ probes, live }: Pick<ApiContext, 'probes' | 'live'>, url: string): EndpointProbe | null {
  const result = probes?.at(url) ?? null;
  if (result !== null) {
    const { stage, message, at, since } = result;
    return { reached: stage === null, stage, message, checked_at: timestamp(at), since: timestamp(since) };
  }
  const found = live
    .countedElsewhere?.()
    .counted.flatMap(({ conditions = [] }) => conditions)
    .filter(({ id }) => id === 'endpoint_unreachable')
    .flatMap(({ subjects = [] }) => subjects)
    .find(({ key }) => key === url);
  if (found === undefined) return null;
  const { message = '', since = null } = found;
  const stage = PROBE_STAGES.find((each) => message === each || message.startsWith(`${each}: `)) ?? 'connection';
  return { reached: false, stage, message: message.slice(stage.length + 2) || null, checked_at: null, since };
}
