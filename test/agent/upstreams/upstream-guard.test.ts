import { describe, expect, it } from 'vitest';
import { parseUpstream } from '../../../src/agent/upstreams/upstream.ts';
import { UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';

const PORT = 4040;
const GATEWAY_PORT = 8443;

function guarded() {
  const guard = new UpstreamGuard(parseUpstreamRules('any'), async () => [{ address: '127.0.0.1', family: 4 }]);
  guard.protectOwnPorts((port) => (port === PORT ? "the agent's own API" : undefined));
  guard.protectOwnPorts((port) => (port === GATEWAY_PORT ? "the gateway's https port" : undefined));
  return guard;
}

describe("the agent's own API", () => {
  it.each([
    `${PORT}`,
    `localhost:${PORT}`,
    `LOCALHOST:${PORT}`,
    `127.0.0.1:${PORT}`,
    `127.1.2.3:${PORT}`,
    `[::1]:${PORT}`,
    `[0:0:0:0:0:0:0:1]:${PORT}`,
    `[::ffff:127.0.0.1]:${PORT}`,
    `[::ffff:7f00:1]:${PORT}`,
    `http://localhost:${PORT}`,
    `name-that-leads-here.example.com:${PORT}`,
  ])('is refused as upstream %s, because clients would reach it without a token', async (forwardsTo) => {
    await expect(guarded().check(parseUpstream(forwardsTo))).rejects.toMatchObject({
      status: 400,
      code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
    });
  });

  it('and other ports of the process are refused with what they are', async () => {
    const refused = (port: number) => guarded().check(parseUpstream(`localhost:${port}`));
    await expect(refused(PORT)).rejects.toThrow("port 4040 is the agent's own API");
    await expect(refused(GATEWAY_PORT)).rejects.toThrow("port 8443 is the gateway's https port");
  });

  it('does not block other ports and hosts', async () => {
    await guarded().check(parseUpstream(`localhost:${PORT + 1}`));
    await guarded().check(parseUpstream(`192.168.0.7:${PORT}`));
  });
});
