import { expect, it } from 'vitest';
import type { ListedTunnel } from '../../src/agent/api/operations.ts';
import { renderTable } from '../../src/commands/output.ts';
import { renderTunnels } from '../../src/commands/tunnels/tunnels-list.ts';

it('a table fits the terminal by cutting only columns that may be cut', () => {
  const columns = [{ title: 'NAME' }, { title: 'URL', minWidth: 8 }];
  const rows = [['camera', 'https://camera.example.com']];
  expect(renderTable(columns, rows, 100)).toBe('NAME    URL\ncamera  https://camera.example.com');
  expect(renderTable(columns, rows, 20)).toBe('NAME    URL\ncamera  https://cam…');
  expect(renderTable(columns, rows, 5)).toBe('NAME    URL\ncamera  https:/…');
});

it('an old check of an upstream is shown with its age, not as the present state', () => {
  const now = Date.parse('2026-11-22T12:00:00Z');
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
  const shown = (state: 'answers' | 'refused', checked: string) =>
    renderTunnels([tunnel(state, checked)], { now, width: 200, color: false })
      .split('\n')[1]
      ?.split(/ {2,}/)
      .slice(4);
  expect(shown('answers', '2026-11-22T11:59:30Z')).toEqual(['answers', '12', '30 s ago']);
  expect(shown('refused', '2026-11-22T11:59:30Z')).toEqual(['refused for 60 min', '12', '30 s ago']);
  expect(shown('answers', '2026-11-22T11:50:00Z')?.[0]).toBe('answers 10 min ago');
  expect(shown('refused', '2026-11-22T11:50:00Z')?.[0]).toBe('refused 10 min ago');
});
