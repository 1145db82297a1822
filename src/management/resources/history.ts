import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { orNull } from './resource.ts';

/** Where agents say when they ran without a session; the authtoken is in the body. */
export const AGENT_TIMES_AWAY_PATH = '/agent_times_away';

const time = z.iso
  .datetime({ offset: true, error: refused(WRONG_VALUE, 'must be a time such as 2026-11-26T00:00:00Z') })
  .transform((text) => new Date(text).toISOString())
  .optional();

/** Which time of a history, and how finely. */
export const HistoryQuery = z.strictObject({
  from: time.meta({ description: 'RFC 3339: from then on. Default: the last 24 hours.' }),
  to: time.meta({ description: 'RFC 3339: until then. Default: now.' }),
  step: z.enum(['minute', 'hour', 'day'], refused(WRONG_VALUE, 'must be minute, hour or day')).optional().meta({
    description:
      'The length of each point. `minute` is kept for three hours, `hour` for 30 days, `day` as long as `GATEWAY_HISTORY` says. Default: the finest that is kept for all of the time, and has at most 200 points.',
  }),
});
export type HistoryQuery = z.output<typeof HistoryQuery>;

export const GatewayHistoryQuery = HistoryQuery.extend({
  url: z.string().max(1024, refused(WRONG_VALUE, 'is too long')).optional().meta({
    description:
      'The URL of an endpoint, or its hostname. It need not be online any more. Default: all endpoints of the gateway.',
  }),
});
export type GatewayHistoryQuery = z.output<typeof GatewayHistoryQuery>;

const count = z.int();

const reading = (what: string) => orNull(z.number()).describe(`${what}. Null: the device does not say.`);

const HistoryPoint = z
  .object({
    at: z.string().describe('When it begins. RFC 3339, UTC.'),
    known_seconds: count.describe(
      'Seconds in which a gateway ran, since the endpoint or device was first online: nothing is known of the others.',
    ),
    online_seconds: count.describe('Seconds online, of those that are known.'),
    requests: count.describe('Requests; for tcp and tls endpoints, connections.'),
    informational: count.describe(
      'Responses with a status from 100 to 199: connections that have switched to WebSocket, for example.',
    ),
    successful: count.describe('Responses with a status from 200 to 299.'),
    redirections: count.describe('Responses with a status from 300 to 399.'),
    client_errors: count.describe('Responses with a status from 400 to 499, without those of a policy.'),
    server_errors: count.describe('Responses of the upstream with a status from 500 on.'),
    refused: count.describe('Requests and connections that a traffic policy or an IP restriction has refused.'),
    refused_by: z
      .record(z.string(), count)
      .describe('The refused ones by type of action; `restriction`: by no action.'),
    failed: count.describe('Requests without a response of the upstream.'),
    received_bytes: count.describe('Bytes from clients to the upstream.'),
    sent_bytes: count.describe('Bytes from the upstream to clients.'),
    reconnects: count.describe('How often it came back online.'),
    sessions_ended: z
      .record(z.string(), count)
      .describe(
        'Sessions of a device by why they ended, of a gateway those of all agents. `stopped`: the agent stopped; `lost`: its connection closed without a word; `silent`: it no longer answered; `replaced`: it had connected again; `gateway`: the gateway stopped or was emptied; `revoked`: its authtoken or address is no longer allowed; `limit`: too many sessions; `faulty`: it broke the protocol, or accepted no connections; `refused`: it was not let in.',
      ),
    away_seconds: count.describe(
      'Seconds in which the device ran, but had no session, as it has said afterwards: not the device was away, but its connection. In the rest of the time offline, the device was off, or its agent has not said.',
    ),
    away_machine: orNull(
      z.object({
        temperature_celsius: reading('The highest temperature of its processor'),
        available_memory_bytes: reading('The least memory that programs could use'),
        available_disk_bytes: reading('The least that was free on the disk of `DATA_DIR`'),
        wireless_signal_dbm: reading('The weakest signal of its wireless network'),
      }),
    ).describe('How the device was in these seconds. Null: it has not said.'),
    latency_ms: orNull(
      z.object({
        p50: count.describe('Half of the requests took at most so long.'),
        p95: count.describe('95 % of them did.'),
        p99: count.describe('99 % of them did.'),
      }),
    ).describe('Milliseconds from a request to the head of its response; estimated. Null without requests.'),
  })
  .describe('What has happened in one step of a history.');
export type HistoryPoint = z.output<typeof HistoryPoint>;

const Top = z.object({
  value: z.string().describe('The path, the network or the status.'),
  requests: count.describe('How many requests had it; this may be too many, never too few.'),
  at_least: count.describe('How many it were at least.'),
});

export const TopRequests = z
  .object({
    uri: z.string().describe('The URI of these lists.'),
    since: z.string().describe('What came since then is counted: an hour at most. RFC 3339, UTC.'),
    requests: count.describe('Requests in this time.'),
    not_looked_at: count.describe('Those that no list has: above 100 requests a second.'),
    paths: z.array(Top).describe('The 20 most frequent paths, without queries.'),
    client_networks: z
      .array(Top)
      .describe('The 20 networks with the most requests: an IPv4 address, or a /56 of IPv6.'),
    statuses: z.array(Top).describe('The most frequent statuses; `none`: the client left before.'),
  })
  .describe(
    'What requests to an endpoint have most. Counting begins when somebody asks for it, and ends three minutes after nobody does.',
  );
export type TopRequests = z.output<typeof TopRequests>;

export const HistoryAnswer = z
  .object({
    uri: z.string().describe('The URI of this history.'),
    from: z.string().describe('When the first point begins. RFC 3339, UTC.'),
    to: z.string().describe('When the last point ends. RFC 3339, UTC.'),
    step: z.enum(['minute', 'hour', 'day']).describe('The length of each point. Days are those of UTC.'),
    longest_outage: orNull(
      z.object({
        from: z.string().describe('RFC 3339, UTC.'),
        to: z.string().describe('RFC 3339, UTC.'),
        seconds: count.describe('Without the time in between of which nothing is known.'),
      }),
    ).describe(
      'The longest time offline while a gateway ran. Null: there was none, or it is the history of a gateway. Of days more than 30 days ago, all outages count as one at the end of the day.',
    ),
    points: z.array(HistoryPoint).describe('The oldest first, without gaps.'),
  })
  .describe('What has happened at an endpoint, a device or a gateway.');
export type HistoryAnswer = z.output<typeof HistoryAnswer>;
