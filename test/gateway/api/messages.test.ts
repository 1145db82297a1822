import { afterEach, beforeEach, expect, it } from 'vitest';
import { MessageLinks } from '../../../src/gateway/messages/message-links.ts';
import { emailTarget, notifyByEmail } from '../../../src/gateway/messages/notify-by-email.ts';
import type { ConditionRow } from '../../../src/gateway/store/condition-history.ts';
import type { ConditionRecord } from '../../../src/management/resources/condition.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';

const WALL = Date.parse('2026-11-30T03:12:00Z');
const HOUR_MS = 3_600_000;
const HOST = 'api.gateway.test';

let server: ManagementServer;
let wall: number;

beforeEach(async () => {
  wall = WALL;
  server = await startManagementServer({ wallClock: () => wall });
});
afterEach(() => server.close());

/** A device that is offline, of which a message has told. @returns the condition and the path of the link in the message */
async function toldCondition(): Promise<{ id: string; path: string; destination: string }> {
  const target = { slack: { url: 'https://hooks.slack.com/services/x' } };
  const { id: destination } = await server.call('POST', '/event_destinations', { target });
  const rule = { destination_ids: [destination], description: 'night watch' };
  const { id: rule_id } = await server.call('POST', '/message_rules', rule);
  const { database, conditionHistory, eventDeliveries, ids, now } = server.store;
  const id = await database.write(() => {
    const [message_id = ''] = eventDeliveries.addMessages([{ destinationId: destination, content: () => ({}) }]);
    const row: ConditionRow = conditionHistory.newRow({
      ...{ id: ids.next('cnd'), created_at: now(), condition: 'device_offline', subject: 'dev_1', name: 'cam-1' },
      ...{ site: 'quarry.example.com', labels: {}, severity: 'warning', message: '<offline>', remedy: 'look' },
      ...{ began_at: now(), comes_and_goes: false, settled: false, withheld: [] },
      told: [{ destination_id: destination, rule_id, message_id, kind: 'begun', at: now() }],
    });
    conditionHistory.insert(row);
    return row.id;
  });
  const message = server.store.conditionHistory.get(id)?.told[0]?.message_id ?? '';
  const token = new MessageLinks(server.store.box).token(message, wall + 7 * 24 * HOUR_MS);
  return { id, path: `/messages/${token}`, destination };
}

const page = async (path: string, form?: Record<string, string>, origin = `https://${HOST}`) => {
  const { port } = new URL(server.url);
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    redirect: 'manual',
    ...(form && {
      method: 'POST',
      body: new URLSearchParams(form).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded', origin, 'x-forwarded-host': HOST },
    }),
  });
  return { status: response.status, text: await response.text(), headers: response.headers };
};

const shown = async (id: string) =>
  (await server.call('GET', `/condition_history/${id}`)).body as unknown as ConditionRecord;

it('refuses rules that nothing could come of, and a destination that a rule names stays', async () => {
  const refused: [body: object, code: number, words: RegExp][] = [
    [{ quiet_hours: '22-7' }, 215, /such as 22:00-07:00 Europe\/Berlin/],
    [{ quiet_hours: '22:00-07:00 Europe/Atlantis' }, 215, /time zone/],
    [{ conditions: ['nothing'] }, 215, /conditions/],
    [{ after_minutes: 0 }, 215, /after_minutes/],
    [{ remind_minutes: 1 }, 215, /at least 10/],
    [{ destination_ids: [`ed_${'0'.repeat(27)}`] }, 5103, /no event destination/],
  ];
  for (const [body, code, words] of refused) {
    const { status, body: answer } = await server.call('POST', '/message_rules', body);
    expect([status, answer.error_code, answer.msg]).toEqual([400, `ERR_NGROK_${code}`, expect.stringMatching(words)]);
  }
  const { destination } = await toldCondition();
  const { body } = await server.call('DELETE', `/event_destinations/${destination}`);
  expect(body.msg).toMatch(/in use: the message rule mr_\w+ names it/);
  const { body: rules } = await server.call('GET', '/message_rules');
  const [rule] = rules.message_rules as { id: string }[];
  const changed = await server.call('PATCH', `/message_rules/${rule?.id}`, {
    quiet_hours: '22:00-07:00 Europe/Berlin',
  });
  expect(changed.body).toMatchObject({ quiet_hours: '22:00-07:00 Europe/Berlin', after_minutes: 5 });
  expect((await server.call('PATCH', `/message_rules/${rule?.id}`, { quiet_hours: '' })).body.quiet_hours).toBe('');
});

it('lists what was wrong with who was told, whether it arrived, and acknowledges and silences it', async () => {
  const { id, destination } = await toldCondition();
  expect(await shown(id)).toMatchObject({
    ...{ title: 'A device is offline', name: 'cam-1', ended_at: null },
    told: [{ kind: 'begun', delivery: 'waiting', error: null, destination: { id: destination } }],
    reasons: [
      expect.stringMatching(
        /^Rule night watch: https:\/\/hooks\.slack\.com was told at 2026-11-30T03:12:00Z: the message waits/,
      ),
    ],
  });
  const { database, eventDeliveries } = server.store;
  await database.write(() => eventDeliveries.failed(destination, '2026-11-30T03:13:00Z', 'connection refused'));
  expect((await shown(id)).reasons[0]).toMatch(/because the destination fails: connection refused/);
  await database.write(() => eventDeliveries.acknowledged(destination, '~'));
  expect((await shown(id)).told[0]?.delivery).toBe('delivered');
  const list = async (query: string) =>
    ((await server.call('GET', `/condition_history?${query}`)).body.condition_history as unknown[]).length;
  expect([
    await list('open=true&site=quarry.example.com'),
    await list('open=false'),
    await list('subject=cam-1'),
  ]).toEqual([1, 0, 1]);
  const acknowledged = await server.call('POST', `/condition_history/${id}/acknowledge`);
  expect(acknowledged.body).toMatchObject({ acknowledged_by: expect.stringMatching(/^ak_/) });
  const silenced = await server.call('POST', `/condition_history/${id}/silence`, { minutes: 60 });
  expect(silenced.body.silenced_until).toBe('2026-11-30T04:12:00Z');
  expect(
    (await server.call('POST', `/condition_history/${id}/silence`, { minutes: 0 })).body.silenced_until,
  ).toBeNull();
});

it('a link in a message leads to a page that asks first, and changes nothing when it is only opened', async () => {
  const { id, path } = await toldCondition();
  const opened = await page(path);
  expect([opened.status, opened.headers.get('cache-control')]).toEqual([200, 'no-store']);
  expect(opened.headers.get('content-security-policy')).toMatch(/frame-ancestors 'none'/);
  expect(opened.text).toMatch(/cam-1 at quarry\.example\.com/);
  expect(opened.text).toMatch(/Acknowledge[\s\S]*Silence/);
  expect(await shown(id)).toMatchObject({ acknowledged_at: null, silenced_until: null });
  expect((await page(path, { act: 'acknowledge' }, 'https://evil.example.com')).status).toBe(403);
  expect((await page(path, { act: 'silence', minutes: '99999' }, server.url.replace('http:', 'https:'))).status).toBe(
    400,
  );
  expect(await shown(id)).toMatchObject({ acknowledged_at: null, silenced_until: null });
  const own = server.url.replace('http:', 'https:');
  const acknowledged = await page(path, { act: 'acknowledge' }, own);
  expect([acknowledged.status, acknowledged.headers.get('location')]).toEqual([303, path]);
  expect((await page(path, { act: 'silence', minutes: '480' }, own)).status).toBe(303);
  expect(await shown(id)).toMatchObject({
    acknowledged_by: 'link',
    silenced_until: '2026-11-30T11:12:00Z',
    silenced_by: 'link',
  });
  expect((await page(path)).text).toMatch(
    /silenced for another 8 h, until 2026-11-30T11:12:00Z[\s\S]*Send messages again/,
  );
  await page(path, { act: 'resume' }, own);
  expect((await shown(id)).silenced_until).toBeNull();
});

it('a link that was changed, or is older than a week, does nothing', async () => {
  const { path } = await toldCondition();
  const [, id = '', until = '', signature = ''] = /^\/messages\/(\w+)\.(\d+)\.([\w-]+)$/.exec(path) ?? [];
  const changed = [
    `/messages/${id}.${Number(until) + 1}.${signature}`,
    `/messages/${id.slice(0, -1)}0.${until}.${signature}`,
    `/messages/${id}.${until}.${'A'.repeat(43)}`,
    '/messages/x',
  ];
  for (const each of changed) expect((await page(each)).status).toBe(404);
  expect((await page(path)).status).toBe(200);
  wall += 7 * 24 * HOUR_MS;
  expect((await page(path)).text).toMatch(/This link is no longer valid/);
});

it('gateway init --notify makes a destination and the usual rules, once', async () => {
  const options = { url: 'smtps://you%40example.com@mail.example.com', password: 'secret' };
  const target = emailTarget('ops@example.com', options);
  expect(target).toMatchObject({ host: 'mail.example.com', port: 465, security: 'tls', from: 'you@example.com' });
  expect(emailTarget('ops@example.com', { url: 'smtp://relay.example.com' })).toMatchObject({
    port: 587,
    security: 'starttls',
  });
  for (const url of ['https://mail.example.com', 'smtps://you:secret@mail.example.com', 'mail'])
    expect(() => emailTarget('ops@example.com', { url })).toThrow(/smtps:\/\/user@mail\.example\.com/);
  expect(() => emailTarget('nobody', options)).toThrow(/must be an email address/);
  const id = await notifyByEmail(server.store, target);
  expect(await notifyByEmail(server.store, target)).toBeNull();
  const { body } = await server.call('GET', '/message_rules');
  const rules = body.message_rules as { destination_ids: string[]; conditions: string[] }[];
  expect(rules.map(({ destination_ids }) => destination_ids)).toEqual([[id], [id], [id]]);
  expect(rules.flatMap(({ conditions }) => conditions)).toContain('device_offline');
});
