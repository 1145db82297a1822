import { createHmac } from 'node:crypto';
import type { publicRequest } from '../../traffic-policy/public-request.ts';
import type { WebhookTarget } from '../store/events.ts';
import type { EventSink } from './event-sink.ts';
import { postEvent } from './post-event.ts';
import { eventJson } from './shown-events.ts';

/** Sends each event as a request that is signed as in the specification of Standard Webhooks. */
export function webhookSink({ url, signingSecret }: WebhookTarget, request: typeof publicRequest): EventSink {
  const key = Buffer.from(signingSecret.replace(/^whsec_/, ''), 'base64');
  return {
    batch: 1,
    async send(events, signal) {
      let answer = '';
      for (const event of events) {
        const body = eventJson(event);
        const seconds = Math.floor(Date.now() / 1000);
        const signature = createHmac('sha256', key).update(`${event.id}.${seconds}.${body}`).digest('base64');
        const headers = {
          'webhook-id': event.id,
          'webhook-timestamp': String(seconds),
          'webhook-signature': `v1,${signature}`,
        };
        answer = await postEvent({ url, body, headers }, request, signal, false);
      }
      return answer;
    },
  };
}
