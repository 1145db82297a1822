import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import { expect, it } from 'vitest';
import { createRemoteApp } from '../../../../src/agent/api/app.ts';
import { BrowserSessions, SESSION_COOKIE, SESSION_SECONDS } from '../../../../src/lib/http/browser-sessions.ts';
import { setUpApi } from '../../../support/api-set-up.ts';
import { serving } from '../../../support/loopback.ts';
import { tunnelRequest } from '../../../support/tunnel-set-up.ts';
import { until } from '../../../support/until.ts';

const HOST = 'agent.site.example.com';
const OWN = { Host: HOST, Origin: `https://${HOST}`, 'Sec-Fetch-Site': 'same-origin' };
const STREAMS = ['/page/events', '/tunnels/cam/requests/events?reveal=true'];

type Headers = Record<string, string>;

async function setUp() {
  let [token, now] = ['the-first-api-token', 1_800_000_000_000];
  const sessions = new BrowserSessions({ now: () => now });
  const { options, tunnels, inspector } = await setUpApi({}, {}, sessions);
  const { tunnel } = await tunnels.create(tunnelRequest({ domain: 'cam.localhost' }));
  const port = await serving(createServer(createRemoteApp(options, () => token)));
  const call = async (method: string, path: string, headers: Headers) => {
    const [answer] = (await once(request({ port, method, path, headers, agent: false }).end(), 'response')) as [
      IncomingMessage,
    ];
    return answer;
  };
  /** Both streams of somebody, and what they sent. */
  const watch = (headers: Headers) =>
    Promise.all(
      STREAMS.map(async (path) => {
        const answer = await call('GET', path, headers);
        const stream = { text: '', ended: false };
        answer.setEncoding('utf8').on('data', (piece) => {
          stream.text += piece;
        });
        answer.once('end', () => {
          stream.ended = true;
        });
        answer.on('error', () => {});
        await until(() => stream.text.includes('snapshot'), 'the first event');
        return stream;
      }),
    );
  const signIn = async (): Promise<Headers> => ({ ...OWN, Cookie: `${SESSION_COOKIE}=${await sessions.start()}` });
  const withToken = (): Headers => ({ Host: HOST, Authorization: `Bearer ${token}` });
  /** Something secret for the streams to send. */
  const passSecret = async (name: string) => {
    inspector.capture(tunnel.id).fromClient(Buffer.from(`GET /?token=${name} HTTP/1.1\r\n\r\n`));
    await tunnels.create(tunnelRequest({ domain: `${name}.localhost` }));
  };
  return {
    ...{ call, watch, signIn, withToken, passSecret, sessions },
    pass: (ms: number) => {
      now += ms;
    },
    replaceToken: async () => {
      token = 'the-second-api-token';
      await sessions.endAll();
    },
  };
}

type Stream = Awaited<ReturnType<Awaited<ReturnType<typeof setUp>>['watch']>>[number];

async function haveEnded(streams: Stream[], secret: string): Promise<void> {
  await until(() => streams.every(({ ended }) => ended), 'the end of the streams');
  for (const { text } of streams) expect(text).not.toContain(secret);
}

it('live streams end on sign-out of their session, and those of others go on', async () => {
  const { call, watch, signIn, withToken, passSecret } = await setUp();
  const [leaving, staying] = [await signIn(), await signIn()];
  const [left, others, caller] = [await watch(leaving), await watch(staying), await watch(withToken())];
  expect((await call('DELETE', '/page/session', leaving)).statusCode).toBe(204);
  await passSecret('hunter2');
  await haveEnded(left, 'hunter2');
  const went = [...others, ...caller];
  await until(() => went.every(({ text }) => text.includes('hunter2')), 'what the others still get');
  expect((await call('DELETE', '/page/sessions', staying)).statusCode).toBe(204);
  await passSecret('hunter3');
  await haveEnded(others, 'hunter3');
  expect(caller.map(({ ended }) => ended)).toEqual([false, false]);
});

it('live streams end with a new API token, for sessions and for those who sent the old one', async () => {
  const { watch, signIn, withToken, passSecret, replaceToken } = await setUp();
  const streams = [...(await watch(await signIn())), ...(await watch(withToken()))];
  await replaceToken();
  await passSecret('hunter2');
  await haveEnded(streams, 'hunter2');
});

it('live streams end when their session expires: an open page does not prolong it', async () => {
  const { watch, signIn, passSecret, pass } = await setUp();
  const streams = await watch(await signIn());
  pass(SESSION_SECONDS * 500);
  await passSecret('before');
  await until(() => streams.every(({ text }) => text.includes('before')), 'what comes before the end');
  pass(SESSION_SECONDS * 500);
  await passSecret('hunter2');
  await haveEnded(streams, 'hunter2');
});
