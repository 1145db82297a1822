import { createHmac } from 'node:crypto';
import { parseRetryAfter } from '../../lib/http/retry-after.ts';
import { namedValues, type publicRequest } from '../../traffic-policy/public-request.ts';
import type { WebhookTarget } from '../store/events.ts';
import { type EventSink, NotAccepted } from './event-sink.ts';
import { eventJson } from './shown-events.ts';

/** Of the body of a response, which nobody reads. */
const MAX_RESPONSE = 64 * 1024;
/** Statuses from 400 to 499 that ask for another try: of the same event, or by somebody who is not so fast. */
const NO_REFUSALS: ReadonlySet<number> = new Set([408, 421, 425, 429]);

/** Sends each event as a request that is signed as in the specification of Standard Webhooks. */
export function webhookSink({ url, signingSecret }: WebhookTarget, request: typeof publicRequest): EventSink {
  const key = Buffer.from(signingSecret.replace(/^whsec_/, ''), 'base64');
  return {
    batch: 1,
    async send(events, signal) {
      for (const event of events) {
        const body = eventJson(event);
        const seconds = Math.floor(Date.now() / 1000);
        const signature = createHmac('sha256', key).update(`${event.id}.${seconds}.${body}`).digest('base64');
        const headers = {
          'content-type': 'application/json',
          'user-agent': 'device-agent-gateway',
          'webhook-id': event.id,
          'webhook-timestamp': String(seconds),
          'webhook-signature': `v1,${signature}`,
        };
        const { status, headers: answered } = await request(
          {
            ...{ method: 'POST', url: new URL(url), headers: Object.entries(headers).flat() },
            ...{ body: Buffer.from(body), maxBytes: MAX_RESPONSE, statusSuffices: true },
          },
          signal,
        );
        if (status >= 200 && status <= 299) continue;
        const isRefusal = status >= 400 && status <= 499 && !NO_REFUSALS.has(status);
        const retryAfterMs = parseRetryAfter(namedValues(answered)['retry-after']?.[0]);
        throw new NotAccepted(`the server responded with status ${status}`, isRefusal, retryAfterMs);
      }
    },
  };
}
