import { expect, it } from 'vitest';
import { StreamType } from '../../../src/agent-protocol/messages.ts';
import { auth, rawAgent } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

const NOBODY = JSON.stringify({ on_http_request: [{ actions: [{ type: 'restrict-ips', config: { allow: [] } }] }] });

it.each([
  [true, ['on_http_request[0].actions[0]: config.allow: is empty, so no client is allowed']],
  [false, undefined],
])(
  'an agent that announces it (%s) is told what is probably wrong with a policy that it binds',
  async (announced, told) => {
    const gateway = await SessionGateway.start();
    const { call } = await rawAgent(gateway);
    const { Extra, ...request } = auth(gateway);
    await call(StreamType.auth, { ...request, Extra: { ...Extra, PolicyWarnings: announced } });
    const bind = async (domain: string, TrafficPolicy: string) =>
      (await call(StreamType.bind, {
        ...{ Id: '', Proto: 'https', ForwardsTo: 'x', Opts: { Domain: domain, TrafficPolicy }, Extra: {} },
      })) as { Error?: string; Warnings?: string[] };
    for (const domain of ['cam.localhost', 'door.localhost']) {
      const { Error: problem, Warnings } = await bind(domain, NOBODY);
      expect([problem ?? '', Warnings]).toEqual(['', told]);
    }
    expect((await bind('open.localhost', '')).Warnings).toBeUndefined();
  },
);
