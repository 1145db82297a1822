import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { AgentProcess } from '../support/agent-process.ts';
import { CONNECTORS } from '../support/connectors.ts';
import { agentSettings, getPublic, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { askHttp2, openHttp2 } from '../support/http2-client.ts';
import { serving } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { DEVICE_ANSWERS, tableDevice } from './device-answers.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.close());

/** An agent with a tunnel to such a device. */
async function startDevice(connector: string): Promise<string> {
  const port = await serving(tableDevice());
  const agent = AgentProcess.inTest(temporaryFolder(), { ...agentSettings(gateway), AGENT_CONNECTOR: connector });
  const answer = await fetch(`${await agent.ready()}/tunnels`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ forwards_to: port, domain: `${connector}.localhost`, policy: {} }),
  });
  expect(answer.status).toBe(200);
  return `${connector}.localhost`;
}

interface Got {
  status: number;
  body: string;
  header: string | undefined;
}

// Node's client parses strictly: what it accepts is a clean message.
describe.each(CONNECTORS)('what devices answer, through the connector %s', (connector) => {
  const rows = DEVICE_ANSWERS.map((row, at) => ({ ...row, path: `/${at}` }));

  const expectAll = async (request: (path: string, header: string) => Promise<Got>, overHttp2: boolean) => {
    const got = await Promise.all(
      rows.map(async ({ what, path, body, fault, header = ['x-a', ''], status = 200 }) => {
        const found = await request(path, header[0]);
        if (body !== null) {
          const expected = { status: overHttp2 && status > 599 ? 500 : status, body, header: header[1] };
          return [what, { ...found, header: found.header ?? '' }, expected];
        }
        const { details = {} } = found.status === 502 ? JSON.parse(found.body) : {};
        return [what, found.status, String(details.response).match(fault ?? /^$/) ? 502 : `502 with ${fault}`];
      }),
    );
    expect(got.map(([what, found]) => [what, found])).toEqual(got.map(([what, , expected]) => [what, expected]));
  };

  it('reaches clients, or is named, over HTTP/1.1 and HTTP/2', async () => {
    const host = await startDevice(connector);
    const plain = async (path: string, header: string): Promise<Got> => {
      const { status = 0, body, headers } = await getPublic(gateway, `https://${host}${path}`);
      return { status, body, header: headers[header] as string | undefined };
    };
    const { httpsPort } = gateway;
    const session = await openHttp2({ httpsPort, ca: { caPem: gateway.sessionCa } }, host);
    onTestFinished(() => session.destroy());
    const overHttp2 = async (path: string, header: string): Promise<Got> => {
      const { headers, body } = await askHttp2(session, { ':path': path });
      return { status: Number(headers[':status']), body, header: headers[header] as string | undefined };
    };
    await expectAll(plain, false);
    await expectAll(overHttp2, true);
  });
});
