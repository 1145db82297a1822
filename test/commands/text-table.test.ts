import { expect, it } from 'vitest';
import type { ListedTunnel } from '../../src/agent/api/agent-operations.ts';
import { renderTable } from '../../src/commands/output.ts';
import { renderTunnels } from '../../src/commands/tunnels/tunnels-list.ts';

const NOW = Date.parse('2026-11-22T12:00:00Z');
const tunnel = (state: 'answers' | 'refused', checked_at: string): ListedTunnel => ({
  url: 'https://a.localhost',
  url_part: 'a',
  protocol: 'http',
  forwards_to: 'localhost:8001',
  domain: 'a.localhost',
  policy: '{}',
  status: 'online',
  since: checked_at,
  last_error: null,
  upstream: { state, since: '2026-11-22T11:00:00Z', checked_at, reason: null },
  traffic: { connections: 1, requests: 12, bytes_in: 1, bytes_out: 1, last_at: '2026-11-22T11:59:30Z' },
});

it('a table fits the terminal by cutting only columns that may be cut', () => {
  const columns = [{ title: 'NAME' }, { title: 'URL', minWidth: 8 }];
  const rows = [['camera', 'https://camera.example.com']];
  expect(renderTable(columns, rows, 100)).toBe('NAME    URL\ncamera  https://camera.example.com');
  expect(renderTable(columns, rows, 20)).toBe('NAME    URL\ncamera  https://cam…');
  expect(renderTable(columns, rows, 5)).toBe('NAME    URL\ncamera  https:/…');
});

it.each([
  [60, ['STATE', 'URL'], 1],
  [80, ['NAME', 'STATE', 'URL'], 1],
  [120, ['NAME', 'STATE', 'URL', 'FORWARDS TO', 'UPSTREAM', 'REQUESTS', 'LAST'], 1],
  [40, ['NAME', 'STATE', 'URL'], 2],
])('the list of tunnels at %i columns shows names and URLs in full, or not at all', (width, titles, lines) => {
  const url = 'https://camera-living-room.sitea.example.com';
  const listed = { ...tunnel('answers', '2026-11-22T11:59:30Z'), url, url_part: 'camera-living-room' };
  const [head = '', ...rows] = renderTunnels([listed], { now: NOW, width, color: false }).split('\n');
  const shown = lines === 1 ? [head, rows] : [`${head}  ${rows.shift()?.trim()}`, rows];
  expect(String(shown[0]).split(/ {2,}/)).toEqual(titles);
  expect(rows).toHaveLength(lines);
  expect(rows.at(-1)).toContain(url);
  if (titles.includes('NAME')) expect(rows[0]).toContain('camera-living-room ');
  if (lines === 1) for (const line of [head, ...rows]) expect(line.length).toBeLessThanOrEqual(width);
});

it('an old check of an upstream is shown with its age, not as the present state', () => {
  const shown = (state: 'answers' | 'refused', checked: string) =>
    renderTunnels([tunnel(state, checked)], { now: NOW, width: 200, color: false })
      .split('\n')[1]
      ?.split(/ {2,}/)
      .slice(4);
  expect(shown('answers', '2026-11-22T11:59:30Z')).toEqual(['answers', '12', '30 s ago']);
  expect(shown('refused', '2026-11-22T11:59:30Z')).toEqual(['refused for 60 min', '12', '30 s ago']);
  expect(shown('answers', '2026-11-22T11:50:00Z')?.[0]).toBe('answers 10 min ago');
  expect(shown('refused', '2026-11-22T11:50:00Z')?.[0]).toBe('refused 10 min ago');
});
