import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Binding, isPermitted, parseAclRule, permittedPorts } from '../../../src/management/resources/acl-rule.ts';

const name = (hostname: string): Binding => ({ kind: 'hostname', hostname });
const labels = (entries: Record<string, string>): Binding => ({ kind: 'labels', labels: entries });

describe('parseAclRule', () => {
  it.each([
    '*',
    'bind:*',
    'bind:app.example.com',
    'bind:App.Example.com',
    'bind:*.example.com',
    'bind:*.localhost',
    'bind:1.tcp.example.com:20002',
    'bind:app=web',
    'bind:app=*',
    'bind:*=web',
    'bind:*-cam-7.example.com',
    'bind:tcp.example.com:20000-20009',
    'bind:localhost:20000-20000',
    'bind:203.0.113.5:20000-20099',
    'bind:203.0.113.5:20000',
    'bind:[2001:db8::5]:20000-20099',
  ])('parses %s', (rule) => {
    expect(parseAclRule(rule)).not.toBeNull();
  });

  it.each([
    '',
    'bind:',
    '**',
    'app.example.com',
    'bind: app.example.com',
    'bind:app.*.example.com',
    'bind:a*.example.com',
    'bind:*.*.example.com',
    'bind:app.example.com:0',
    'bind:*.example.com:443',
    'bind:=web',
    'bind:app=',
    'bind:a=b=c',
    'bind:a*=b',
    'listen:app.example.com',
    'bind:*-.example.com',
    'bind:*-cam',
    'bind:*-a.*.example.com',
    'bind:tcp.example.com:9-1',
    'bind:tcp.example.com:0-1',
    'bind:tcp.example.com:1-65536',
    'bind:*.example.com:1-2',
  ])('rejects %j', (rule) => {
    expect(parseAclRule(rule)).toBeNull();
  });
});

describe('isPermitted', () => {
  it('allows everything without rules and with * or bind:*', () => {
    const bindings: Binding[] = [
      name('a.example.com'),
      { kind: 'address', address: 'a.example.com:1' },
      { kind: 'any-address' },
      labels({ a: 'b' }),
    ];
    for (const binding of bindings) {
      for (const acl of [[], ['*'], ['bind:*'], ['bind:x.example.com', '*']])
        expect(isPermitted(acl, binding)).toBe(true);
    }
  });

  it('allows exactly one name by a plain rule', () => {
    expect(isPermitted(['bind:App.example.com'], name('app.example.com'))).toBe(true);
    expect(isPermitted(['bind:app.example.com'], name('b.app.example.com'))).toBe(false);
  });

  it('allows names at any depth and the wildcard itself by a wildcard rule, but not its base', () => {
    const acl = ['bind:*.example.com'];
    for (const good of ['a.example.com', 'a.b.example.com', '*.example.com', '*.a.example.com']) {
      expect(isPermitted(acl, name(good))).toBe(true);
    }
    for (const bad of ['example.com', 'aexample.com', 'a.example.org']) expect(isPermitted(acl, name(bad))).toBe(false);
  });

  it('allows only the given TCP address, and no random one', () => {
    const acl = ['bind:1.tcp.example.com:20002'];
    expect(isPermitted(acl, { kind: 'address', address: '1.tcp.example.com:20002' })).toBe(true);
    expect(isPermitted(acl, { kind: 'address', address: '1.tcp.example.com:20003' })).toBe(false);
    expect(isPermitted(acl, { kind: 'any-address' })).toBe(false);
    expect(isPermitted(acl, name('1.tcp.example.com'))).toBe(false);
  });

  it('allows labels with an ending directly below a name, and nothing shorter or deeper', () => {
    const acl = ['bind:*-cam.example.com'];
    expect(isPermitted(acl, name('door-cam.example.com'))).toBe(true);
    const others = ['cam', '-cam', 'doorcam', 'a.door-cam', 'door-cam.a', '*', 'door-cam-2'];
    for (const bad of others) expect(isPermitted(acl, name(`${bad}.example.com`))).toBe(false);
    expect(isPermitted(acl, name('door-cam.example.org'))).toBe(false);
  });

  it('allows the TCP addresses of a range, from which the gateway can choose one', () => {
    const acl = ['bind:tcp.example.com:20000-20009'];
    const mayBind = (address: string) => isPermitted(acl, { kind: 'address', address });
    expect([20000, 20009].map((port) => mayBind(`tcp.example.com:${port}`))).toEqual([true, true]);
    expect([19999, 20010].map((port) => mayBind(`tcp.example.com:${port}`))).toEqual([false, false]);
    expect(mayBind('example.com:20000')).toBe(false);
    expect(permittedPorts(acl, 'tcp.example.com')).toEqual([{ first: 20000, last: 20009 }]);
  });

  it('requires that some rule allows each label', () => {
    const acl = ['bind:app=web', 'bind:site=*'];
    expect(isPermitted(acl, labels({ app: 'web', site: 'b' }))).toBe(true);
    expect(isPermitted(acl, labels({ app: 'db' }))).toBe(false);
    expect(isPermitted(acl, labels({ app: 'web', other: 'x' }))).toBe(false);
    expect(isPermitted(['bind:*.example.com'], labels({ app: 'web' }))).toBe(false);
    expect(isPermitted(acl, labels({}))).toBe(false);
  });

  it('allows no less with another rule, and nothing by an invalid rule', () => {
    const rule = fc.constantFrom(
      'bind:*.example.com',
      'bind:a.example.com',
      'bind:app=web',
      'bind:b.example.com:1',
      'nonsense',
      'bind:a*',
    );
    const binding = fc.constantFrom<Binding>(name('a.example.com'), name('x.org'), labels({ app: 'web' }), {
      kind: 'address',
      address: 'b.example.com:1',
    });
    fc.assert(
      fc.property(fc.array(rule, { minLength: 1 }), rule, binding, (acl, more, what) => {
        if (isPermitted(acl, what)) expect(isPermitted([...acl, more], what)).toBe(true);
        expect(isPermitted(['nonsense', 'bind:a*'], what)).toBe(false);
      }),
    );
  });
});
