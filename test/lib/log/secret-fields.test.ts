import { expect, it } from 'vitest';
import { createLog } from '../../../src/lib/log/log.ts';

it('fields whose names stand for a secret are masked, wherever they are, also in errors', async () => {
  const written: string[] = [];
  const log = await createLog('info', 'json', { write: (line) => void written.push(line) });
  const err = Object.assign(new Error('refused'), { apiKey: 'hunter2', code: 'E1' });
  log.info(
    { authtoken: 'hunter2', request: { headers: [{ Authorization: 'hunter2' }] }, password1: 'hunter2', err },
    'x',
  );
  log.info({ secretKey: 'hunter2', token: null, api_key: 'ak_1', key: 'hunter2', at: new Date(0) }, 'y');
  expect(written.join('')).not.toContain('hunter2');
  expect(written.map((line) => JSON.parse(line))).toMatchObject([
    { authtoken: '[masked]', request: { headers: [{ Authorization: '[masked]' }] }, err: { code: 'E1' }, msg: 'x' },
    { secretKey: '[masked]', token: null, api_key: 'ak_1', key: '[masked]', at: '1970-01-01T00:00:00.000Z' },
  ]);
});
