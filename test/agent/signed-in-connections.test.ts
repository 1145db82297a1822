import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { Agent } from 'node:https';
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import express, { type RequestHandler } from 'express';
import { describe, expect, it, onTestFinished } from 'vitest';
import { CONNECTORS } from '../support/connectors.ts';
import { serving } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { Device } from './device.ts';

const HOST = 'panel.localhost';
const CLIENTS = 100;
/** Of so many clients, one never signs in. */
const STRANGERS = 5;

/** As NTLM does: two requests sign in the connection that they came on, whoever sends the next one. */
function strictPanel(): RequestListener {
  const users = new WeakMap<Socket, string | null>();
  return (req: IncomingMessage, res: ServerResponse) => {
    const { socket } = req;
    const [, token = ''] = /^NTLM (\S+)$/.exec(req.headers.authorization ?? '') ?? [];
    const isChallenge = token === 'TYPE1';
    if (isChallenge) users.set(socket, null);
    else if (token !== '') users.set(socket, users.has(socket) ? token : 'out of turn');
    const user = users.get(socket) ?? null;
    if (user !== null) res.end(`page of ${user}`);
    else res.writeHead(401, { 'www-authenticate': isChallenge ? 'NTLM TYPE2' : 'NTLM' }).end('sign in');
  };
}

/** A real server, whose responses to those who have not signed in have no body. */
function expressNtlm(): RequestListener {
  const ntlm = createRequire(import.meta.url)('express-ntlm') as (options: object) => RequestHandler;
  return express()
    .use(ntlm({}))
    .use((_req, res) => void res.send(`page of ${res.locals.ntlm.UserName}`));
}

/** A message of NTLM (MS-NLMP, sections 2.2.1.1 and 2.2.1.3) in base64: the first of a handshake, or a user's answer. */
function ntlmMessage(user: string | null): string {
  const type = Buffer.alloc(4);
  type.writeUInt32LE(user === null ? 1 : 3);
  const start = Buffer.concat([Buffer.from('NTLMSSP\0'), type]);
  const unicode = Buffer.from([1, 0, 0, 0]);
  if (user === null) return Buffer.concat([start, unicode]).toString('base64');
  const name = Buffer.from(user, 'utf16le');
  const headBytes = 64;
  const field = ({ length }: Buffer) => {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt16LE(length, 0);
    bytes.writeUInt16LE(length, 2);
    bytes.writeUInt32LE(headBytes, 4);
    return bytes;
  };
  const empty = Buffer.alloc(0);
  // Two answers, the domain, the user, the workstation and a key.
  const fields = [empty, empty, empty, name, empty, empty].map(field);
  return Buffer.concat([start, ...fields, unicode, name]).toString('base64');
}

const SERVERS = [
  { server: 'a strict panel', listener: strictPanel, first: 'TYPE1', answerOf: (user: string) => user },
  { server: 'express-ntlm', listener: expressNtlm, first: ntlmMessage(null), answerOf: ntlmMessage },
];

describe.each(CONNECTORS)('a device that signs in connections, through the connector %s', (connector) => {
  it.each(SERVERS)('gives a hundred clients that come at once their own pages: $server', async (panel) => {
    const { listener, first, answerOf } = panel;
    const device = await Device.start(temporaryFolder(), { AGENT_CONNECTOR: connector });
    onTestFinished(() => device.agent.end('SIGKILL').then(() => {}));
    const forwards_to = await serving(createServer(listener()));
    expect((await device.post({ forwards_to, domain: HOST, policy: {} })).status).toBe(200);

    const visit = async (number: number): Promise<string[]> => {
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      onTestFinished(() => agent.destroy());
      const bodies: string[] = [];
      const tokens = number % STRANGERS === 0 ? ['', '', '', ''] : ['', first, answerOf(`user-${number}`), '', ''];
      for (const token of tokens) {
        const headers = token === '' ? {} : { authorization: `NTLM ${token}` };
        bodies.push((await device.get(HOST, { agent, headers })).body || 'sign in');
      }
      return bodies;
    };
    const visits = await Promise.all(Array.from({ length: CLIENTS }, (_, number) => visit(number)));
    const page = (number: number) => Array.from({ length: 3 }, () => `page of user-${number}`);
    expect(visits).toEqual(
      visits.map((_, number) =>
        number % STRANGERS === 0
          ? ['sign in', 'sign in', 'sign in', 'sign in']
          : ['sign in', 'sign in', ...page(number)],
      ),
    );
  });
});
