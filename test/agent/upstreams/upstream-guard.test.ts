import { realpath, symlink, writeFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LocalhostResolver, UpstreamGuard } from '../../../src/agent/upstreams/upstream-guard.ts';
import { parseUpstream, type TcpUpstream } from '../../../src/lib/network/upstream-address.ts';
import { parseUpstreamRules } from '../../../src/settings/upstream-rules.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const PORT = 4040;
const GATEWAY_PORT = 8443;

function guarded() {
  const guard = new UpstreamGuard(parseUpstreamRules('any'), async () => [{ address: '127.0.0.1', family: 4 }]);
  guard.protectOwnPorts(new Map([[PORT, "the agent's own API"]]));
  guard.protectOwnPorts(new Map([[GATEWAY_PORT, "the gateway's https port"]]));
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
    await expect(refused(GATEWAY_PORT)).rejects.toMatchObject({
      details: { forwards_to: "port 8443 is the gateway's https port" },
    });
  });

  it('does not block other ports and hosts', async () => {
    await guarded().check(parseUpstream(`localhost:${PORT + 1}`));
    await guarded().check(parseUpstream(`192.168.0.7:${PORT}`));
  });
});

it.each([
  ['an address', '8.8.8.8:80', 'private'],
  ['localhost', 'localhost:80', 'private'],
  ['loopback', '127.0.0.1:80', 'private'],
  ['a private address', '10.0.0.1:80', 'loopback'],
])('%s is refused when the rules do not allow it, with what they allow', async (_, forwardsTo, rules) => {
  await expect(new UpstreamGuard(parseUpstreamRules(rules)).check(parseUpstream(forwardsTo))).rejects.toMatchObject({
    code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
    message: `upstream not allowed: ${forwardsTo}; AGENT_ALLOW_UPSTREAMS allows ${rules}, and link-local, metadata and multicast addresses are never allowed`,
    details: { forwards_to: `${forwardsTo} is not allowed` },
  });
});

describe('a named upstream', () => {
  const camera = parseUpstream('camera:80') as TcpUpstream;
  const resolvingTo = (...addresses: string[]) =>
    new UpstreamGuard(parseUpstreamRules('private'), async () => addresses.map((address) => ({ address, family: 4 })));

  it('is allowed when all its addresses are', async () => {
    const guard = resolvingTo('10.0.0.1', '192.168.0.2');
    await guard.check(camera);
    expect((await guard.resolve(camera)).map(({ address }) => address)).toEqual(['10.0.0.1', '192.168.0.2']);
  });

  it('is refused when one of its addresses is not allowed, naming it', async () => {
    await expect(resolvingTo('10.0.0.1', '8.8.8.8').check(camera)).rejects.toMatchObject({
      code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
      message: expect.stringContaining('(camera is 8.8.8.8)'),
    });
  });

  it('is unknown when it has no address or the look-up fails, with the reason', async () => {
    const unknown = { code: 'ERR_AGENT_UPSTREAM_UNKNOWN', details: { forwards_to: 'cannot resolve camera' } };
    await expect(resolvingTo().check(camera)).rejects.toMatchObject(unknown);
    const failing = new UpstreamGuard(parseUpstreamRules('private'), () => Promise.reject(new Error('EAI_AGAIN')));
    const details = { forwards_to: 'cannot resolve camera: EAI_AGAIN' };
    await expect(failing.check(camera)).rejects.toMatchObject({ ...unknown, details });
  });

  it('is looked up by the system, with all its addresses', async () => {
    const guard = new UpstreamGuard(parseUpstreamRules('loopback'));
    const addresses = await guard.resolve(parseUpstream('localhost:80') as TcpUpstream);
    expect(addresses).toContainEqual({ address: '127.0.0.1', family: 4 });
  });

  it('is looked up once for concurrent connections, and again for later ones', async () => {
    let lookups = 0;
    const guard = new UpstreamGuard(parseUpstreamRules('private'), async () => {
      lookups++;
      return [{ address: '10.0.0.1', family: 4 }];
    });
    await Promise.all([guard.resolve(camera), guard.resolve(camera)]);
    expect(lookups).toBe(1);
    await guard.resolve(camera);
    expect(lookups).toBe(2);
  });
});

describe('a unix socket', () => {
  it('is allowed where a rule names it, by its real path, and refused elsewhere', async () => {
    const folder = await realpath(temporaryFolder());
    await writeFile(join(folder, 'app.sock'), '');
    await symlink(join(folder, 'app.sock'), join(folder, 'link.sock'));
    const guard = new UpstreamGuard(parseUpstreamRules(`unix:${folder}`));
    await guard.check({ kind: 'unix', path: join(folder, 'link.sock') });
    expect(await guard.resolveSocket(join(folder, 'link.sock'))).toBe(join(folder, 'app.sock'));
    const refused = { code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED', message: expect.stringContaining('not allowed: unix:') };
    const elsewhere = new UpstreamGuard(parseUpstreamRules('unix:/srv'));
    await expect(elsewhere.check({ kind: 'unix', path: join(folder, 'app.sock') })).rejects.toMatchObject(refused);
    await expect(elsewhere.resolveSocket(join(folder, 'link.sock'))).rejects.toMatchObject(refused);
    await expect(guard.resolveSocket(join(folder, 'missing.sock'))).rejects.toThrow(/cannot check unix:.*ENOENT/);
    await expect(guard.check({ kind: 'unix', path: join(folder, 'app.sock/below') })).rejects.toMatchObject({
      code: 'ERR_AGENT_UPSTREAM_NOT_ALLOWED',
      message: expect.stringMatching(/cannot check unix:.*ENOTDIR/),
      cause: expect.objectContaining({ code: 'ENOTDIR' }),
    });
  });
});

const addresses = (...list: string[]) => list.map((address) => ({ address, family: isIPv6(address) ? 6 : 4 }));
const [V4, V6] = ['127.0.0.1', '::1'];

it.each([
  ['both', [V6, V4], true, { found: [V6, V4], isComplete: true }],
  ['127.0.0.1 only', [V4], true, { found: [V4, V6], isComplete: false }],
  ['::1 only', [V6], true, { found: [V6, V4], isComplete: false }],
  ['127.0.0.1 only, on a machine without IPv6', [V4], false, { found: [V4], isComplete: true }],
  ['nothing, on a machine without IPv6', [], false, { found: [V4], isComplete: false }],
  ['another machine', ['10.0.0.5', V4, V6], true, { found: [V4, V6], isComplete: false }],
  ['another address of loopback', ['127.0.1.1'], true, { found: ['127.0.1.1', V4, V6], isComplete: false }],
])(
  'localhost is all of loopback where the system resolves it to %s',
  async (_, known, hasIpv6, { found, isComplete }) => {
    const resolver = new LocalhostResolver(
      async () => addresses(...known),
      () => hasIpv6,
    );
    expect(await resolver.resolve()).toEqual({ addresses: addresses(...found), isComplete });
  },
);

it('localhost is all of loopback where the system does not resolve it, or too late', async () => {
  const all = { addresses: addresses(V4, V6), isComplete: false };
  const unknown = async () => Promise.reject(new Error('getaddrinfo ENOTFOUND localhost'));
  for (const system of [unknown, () => new Promise<never>(() => {})])
    expect(await new LocalhostResolver(system, () => true).resolve()).toEqual(all);
});

it('the system is asked once for many connections', async () => {
  let asked = 0;
  const resolver = new LocalhostResolver(async () => {
    asked += 1;
    return addresses(V4);
  });
  await Promise.all(Array.from({ length: 20 }, () => resolver.resolve()));
  expect(asked).toBe(1);
});
