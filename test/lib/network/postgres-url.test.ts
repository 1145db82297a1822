import { expect, it } from 'vitest';
import { parsePostgresUrl } from '../../../src/lib/network/postgres-url.ts';

it('reads hosts, TLS and target as libpq does', () => {
  expect(
    parsePostgresUrl('postgres://u:p%40s%2Fs@a:1,b/db?target_session_attrs=read-write&sslmode=require&x=1'),
  ).toEqual({
    urls: ['postgres://u:p%40s%2Fs@a:1/db?x=1', 'postgres://u:p%40s%2Fs@b/db?x=1'],
    ...{ sslMode: 'require', files: {} },
  });
  expect(parsePostgresUrl('postgresql://u@[::1]:5432/db?sslmode=verify-ca&sslrootcert=/ca.pem')).toMatchObject({
    ...{ urls: ['postgresql://u@[::1]:5432/db'], files: { ca: '/ca.pem' } },
  });
});

it.each(['hunter%2', 'hun%ter', 'hun/ter2', 'hun?ter2', 'hun#ter2', '12/ter', '%ff'])(
  'refuses the password %s without printing any part of it',
  (password) => {
    const read = () => parsePostgresUrl(`postgres://somebody:${password}@db.example.com/gateway`);
    expect(read).toThrow(/%25 for %/);
    expect(read).not.toThrow(/somebody|hun|ter|example|gateway/);
  },
);

it.each([
  ['postgres://u@h:port/db', /ports/],
  ['https://u@h/db', /not such a URL/],
  ['postgres://u@h/db?sslmode=on', /sslmode must be one of disable/],
  ['postgres://u@h/db?sslmode=verify-ca', /requires sslrootcert/],
  ['postgres://u@a,b/db?target_session_attrs=standby', /must be one of any, read-write, primary/],
])('refuses %s', (url, message) => {
  expect(() => parsePostgresUrl(url)).toThrow(message);
});
