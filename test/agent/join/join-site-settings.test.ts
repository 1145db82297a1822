import { expect, it } from 'vitest';
import { withSettings } from '../../../src/agent/join/join-site.ts';

it('joining replaces its own settings where they are, and leaves the others and the comments', () => {
  const before =
    '# My device\nLOG_LEVEL=debug\nNGROK_SERVER_ADDR=old:443\n#AGENT_DOMAIN=example\nNGROK_AUTHTOKEN=old\n';
  const after = withSettings(before, { NGROK_SERVER_ADDR: 'new:443', AGENT_DOMAIN: 'a.b', NGROK_AUTHTOKEN: null });
  expect(after).toBe(
    '# My device\nLOG_LEVEL=debug\nNGROK_SERVER_ADDR=new:443\n#AGENT_DOMAIN=example\n# Written by device-agent join.\nAGENT_DOMAIN=a.b\n',
  );
  expect(withSettings(after, { AGENT_DOMAIN: 'a.b' })).toBe(after);
});

it('joining again keeps the connector that the operator chose', () => {
  const settings = { AGENT_NAME: 'cam', AGENT_CONNECTOR: 'native' };
  const first = withSettings('', settings);
  expect(first).toBe('# Written by device-agent join.\nAGENT_NAME=cam\nAGENT_CONNECTOR=native\n');
  const chosen = first.replace('native', 'sdk');
  expect(withSettings(chosen, settings, ['AGENT_CONNECTOR'])).toBe(chosen);
});

it('refuses a value that could be another setting', () => {
  const settings = { NGROK_SERVER_ADDR: 'a:443\nNODE_OPTIONS=--require=/tmp/x.js' };
  expect(() => withSettings('', settings)).toThrow(/control characters: nothing was written/);
});
