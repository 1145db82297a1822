import { expect, it } from 'vitest';
import { takeListenFds } from '../../src/settings/common-settings.ts';

it('takeListenFds takes the descriptors of this process, and removes the variables for child processes', () => {
  const env = { LISTEN_PID: String(process.pid), LISTEN_FDS: '2', LISTEN_FDNAMES: 'a:b', PATH: '/bin' };
  expect(takeListenFds(env)).toEqual([3, 4]);
  expect(env).toEqual({ PATH: '/bin' });
});

it('takeListenFds ignores what is for another process', () => {
  const env = { LISTEN_PID: String(process.pid + 1), LISTEN_FDS: '2' };
  expect(takeListenFds(env)).toEqual([]);
  expect(env).toEqual({});
});
