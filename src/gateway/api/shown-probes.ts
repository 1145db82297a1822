import type { EndpointProbe } from '../../management/resources/endpoint.ts';
import { timestamp } from '../store/store.ts';
import type { ApiContext } from './api-context.ts';

/** What the last probe of an endpoint has found, of whichever gateway; null: no gateway has asked. */
export function probeAt({ probes }: Pick<ApiContext, 'probes'>, url: string): EndpointProbe | null {
  const result = probes?.at(url) ?? null;
  if (result === null) return null;
  const { stage, message, at, since } = result;
  return { reached: stage === null, stage, message, checked_at: timestamp(at), since: timestamp(since) };
}
