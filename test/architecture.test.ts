import { describe, expect, it } from 'vitest';
import { cyclesOf, importsBelow, loadedWith } from './support/import-graph.ts';

const EDGE = 'gateway/edge';
/**
 * Which folders each folder of src may import, the arrows of docs/architecture.md in full. A folder without an entry of
 * its own belongs to the nearest one above it. `x/*` stands for x and all folders in it. Every folder may import lib.
 */
const ARROWS: Record<string, string[]> = {
  '.': ['commands'],
  commands: ['agent/*', 'gateway/*', 'management', 'doctor/*', 'doctor', 'service', 'update', 'settings', '.'],
  'doctor/gateway': ['doctor', 'gateway/endpoints', 'gateway/offline', 'management', 'service', 'settings'],
  doctor: ['agent/*', 'management', 'traffic-policy', 'service', 'settings', '.'],
  update: ['agent', 'agent/join', 'agent/offline', 'gateway/offline', 'management', 'service', 'settings', '.'],
  service: ['settings'],
  agent: ['agent/*', 'traffic-policy', 'settings', '.'],
  'agent/api': [
    'agent-protocol',
    'agent/tunnels',
    'agent/upstreams',
    'agent/connectors',
    'agent/inspector',
    'agent/history',
    'agent/errors',
    'traffic-policy',
  ],
  'agent/history': ['agent/context', 'agent/tunnels', 'agent/upstreams', 'agent-protocol'],
  'agent/inspector': ['agent/errors', 'agent-protocol'],
  'agent/join': ['agent-protocol', 'management', 'settings'],
  'agent/offline': ['agent/connectors', 'agent/tunnels', 'traffic-policy', 'settings'],
  'web/ui': [],
  'web/device': ['web/ui', 'agent/api'],
  'web/gateway': ['web/ui', 'management', 'gateway/api'],
  web: [],
  'agent/tunnels': ['agent/context', 'agent/upstreams', 'agent/connectors', 'agent/errors', 'traffic-policy'],
  'agent/upstreams': ['agent/context', 'agent/connectors', 'agent/errors', 'agent-protocol', 'settings'],
  'agent/connectors/sdk': ['agent/connectors', 'agent-protocol'],
  'agent/connectors/native': ['agent/connectors', 'agent-protocol', 'traffic-policy'],
  'agent/connectors': ['agent/context', 'agent/errors', 'agent-protocol', 'traffic-policy'],
  'agent/context': ['settings'],
  'agent/errors': [],
  gateway: ['gateway/*', 'traffic-policy', 'settings', 'update', '.'],
  'gateway/api': [
    'gateway/access',
    'gateway/certificates',
    'gateway/cloud-endpoints',
    'gateway/conditions',
    'gateway/devices',
    'gateway/endpoints',
    'gateway/events',
    'gateway/messages',
    'gateway/history',
    'gateway/metrics',
    'gateway/probes',
    'gateway/releases',
    'gateway/share-links',
    'gateway/sign-in',
    'gateway/store',
    'agent-protocol',
    'management',
    'traffic-policy',
    'update',
    '.',
    'gateway/context',
  ],
  'gateway/status-pages': ['gateway/endpoints', 'gateway/history', 'management', 'traffic-policy'],
  'gateway/conditions': ['gateway/endpoints', 'gateway/metrics', 'gateway/store', 'management'],
  'gateway/devices': [
    'agent-protocol',
    'gateway/certificates',
    'gateway/endpoints',
    'gateway/store',
    'management',
    'gateway/context',
  ],
  'gateway/access': [
    'gateway/context',
    'gateway/devices',
    'gateway/sessions',
    'gateway/endpoints',
    'gateway/store',
    'agent-protocol',
    'management',
    'traffic-policy',
  ],
  'gateway/sessions': [
    'gateway/endpoint-options',
    'gateway/endpoints',
    'gateway/store',
    'agent-protocol',
    'management',
    'traffic-policy',
    'settings',
    'gateway/context',
  ],
  'gateway/cluster': [`${EDGE}/relays`, 'gateway/endpoints', 'gateway/store', 'agent-protocol', 'gateway/context'],
  'gateway/cloud-endpoints': [
    'gateway/endpoints',
    'gateway/store',
    'agent-protocol',
    'traffic-policy',
    'gateway/context',
  ],
  'gateway/tls-edges': [
    EDGE,
    `${EDGE}/connections`,
    `${EDGE}/tls`,
    `${EDGE}/http`,
    'gateway/endpoints',
    'gateway/store',
    'traffic-policy',
    'gateway/context',
  ],
  [EDGE]: [`${EDGE}/*`, 'gateway/certificates', 'gateway/endpoints', 'gateway/context'],
  [`${EDGE}/proxy`]: [
    `${EDGE}/upstreams`,
    `${EDGE}/connections`,
    `${EDGE}/http`,
    'gateway/endpoints',
    'agent-protocol',
    'traffic-policy',
    'gateway/context',
  ],
  [`${EDGE}/relays`]: [`${EDGE}/connections`, `${EDGE}/http`, 'gateway/endpoints', 'agent-protocol', 'traffic-policy'],
  [`${EDGE}/streams`]: [
    `${EDGE}/relays`,
    `${EDGE}/upstreams`,
    `${EDGE}/connections`,
    `${EDGE}/tls`,
    `${EDGE}/http`,
    'gateway/endpoints',
    'traffic-policy',
    'gateway/context',
  ],
  [`${EDGE}/upstreams`]: [`${EDGE}/http`, 'gateway/endpoints', 'agent-protocol', 'traffic-policy'],
  [`${EDGE}/clients`]: [`${EDGE}/tls`, `${EDGE}/http`, 'gateway/metrics'],
  [`${EDGE}/connections`]: [
    `${EDGE}/tls`,
    `${EDGE}/http`,
    'gateway/endpoints',
    'gateway/metrics',
    'traffic-policy',
    'gateway/context',
  ],
  [`${EDGE}/tls`]: [`${EDGE}/http`, 'gateway/certificates', 'gateway/endpoints', 'traffic-policy'],
  [`${EDGE}/http`]: ['gateway/endpoints'],
  'gateway/context': ['gateway/endpoints', 'gateway/metrics', 'gateway/store', 'traffic-policy', 'settings'],
  'gateway/certificates': ['gateway/store', 'gateway/endpoints', 'management', 'settings', '.', 'gateway/context'],
  'gateway/events': ['gateway/endpoints', 'gateway/store', 'management', 'traffic-policy', 'gateway/context'],
  'gateway/messages': [
    'gateway/conditions',
    'gateway/context',
    'gateway/endpoints',
    'gateway/events',
    'gateway/store',
    'management',
  ],
  'gateway/probes': [
    'gateway/cluster',
    `${EDGE}/relays`,
    'gateway/conditions',
    'gateway/context',
    'gateway/endpoints',
    'gateway/store',
    'traffic-policy',
    '.',
  ],
  'gateway/history': [
    'gateway/cluster',
    'gateway/sessions',
    `${EDGE}/relays`,
    'gateway/endpoints',
    'gateway/store',
    'gateway/context',
    'agent-protocol',
  ],
  'gateway/sign-in': ['gateway/endpoints', 'gateway/store', 'traffic-policy', '.', 'gateway/context', 'gateway/events'],
  'gateway/releases': ['gateway/context', 'gateway/endpoints', 'gateway/store', 'management'],
  'gateway/share-links': ['gateway/endpoints', 'gateway/sign-in', 'gateway/store', 'management', 'traffic-policy'],
  'gateway/backup': ['gateway/certificates', 'gateway/store', 'settings', '.'],
  'gateway/offline': [
    'gateway/backup',
    'gateway/certificates',
    'gateway/cluster',
    `${EDGE}/relays`,
    'gateway/endpoints',
    'gateway/messages',
    'gateway/store',
    'management',
    'settings',
  ],
  'gateway/store': ['gateway/endpoints', 'management', '.'],
  'gateway/endpoint-options': ['agent-protocol', 'traffic-policy'],
  'gateway/endpoints': ['agent-protocol', 'management', 'traffic-policy'],
  'gateway/metrics': ['agent-protocol'],
  'agent-protocol': [],
  management: [],
  'traffic-policy': [],
  settings: ['lib', '.'],
  lib: [],
};
/** The agent loads the gateway's code only when it runs one itself. */
const EMBEDDED_GATEWAY = 'src/agent/gateway-uplink.ts → src/gateway/gateway.ts';

const imports = importsBelow('src');

function folderOf(file: string): string {
  for (let path = file.slice('src/'.length); path.includes('/'); ) {
    path = path.slice(0, path.lastIndexOf('/'));
    if (path in ARROWS) return path;
  }
  return '.';
}

function isAllowed(from: string, to: string): boolean {
  return (
    from === to ||
    to === 'lib' ||
    (ARROWS[from] ?? []).some((target) =>
      target.endsWith('/*') ? `${to}/`.startsWith(target.slice(0, -1)) : target === to,
    )
  );
}

describe('the imports of src', () => {
  it('follow the arrows between folders', () => {
    const wrong = imports.filter(({ from, to }) => !isAllowed(folderOf(from), folderOf(to)));
    const [embedded, ...rest] = wrong.map(({ from, to, dynamic }) => `${from} → ${to}${dynamic ? '' : ' (static)'}`);
    expect([embedded, rest]).toEqual([EMBEDDED_GATEWAY, []]);
  });

  it('form no cycle between files, also through what is loaded later', () => {
    expect(cyclesOf(imports)).toEqual([]);
  });

  it('form no cycle between folders, which the arrows would allow', () => {
    const folders = imports
      .map(({ from, to }) => ({ from: folderOf(from), to: folderOf(to) }))
      // The files of src itself are the executable and two constants of the package.
      .filter(({ from, to }) => from !== to && from !== '.' && to !== '.');
    expect(cyclesOf(folders.filter(({ from, to }) => from !== 'agent' || to !== 'gateway'))).toEqual([]);
  });

  it('load the traffic inspector only when it is used', () => {
    const loaded = [...loadedWith('src/agent/agent.ts', imports)];
    expect(loaded.length).toBeGreaterThan(50);
    expect(loaded.filter((file) => file.startsWith('src/agent/inspector/'))).toEqual([]);
  });

  it('use every arrow', () => {
    const used = new Set(imports.map(({ from, to }) => `${folderOf(from)} → ${folderOf(to)}`));
    const arrows = Object.entries(ARROWS).flatMap(([from, all]) => all.map((to) => `${from} → ${to}`));
    expect(arrows.filter((arrow) => !arrow.endsWith('/*') && !used.has(arrow))).toEqual([]);
  });
});
