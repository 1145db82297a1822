const WIDTH = 960;
const HEIGHT = 330;

const STYLE = `
    .page { fill: #ffffff; stroke: #d0d7de; }
    .zone { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 5 4; }
    .box { fill: #ffffff; stroke: #57606a; stroke-width: 1.5; }
    .own { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5; }
    .line { fill: none; stroke: #57606a; stroke-width: 2; }
    .session { fill: none; stroke: #0969da; stroke-width: 5; }
    .head { fill: #57606a; }
    .session-head { fill: #0969da; }
    text { font: 14px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2328; text-anchor: middle; }
    .name { font-weight: 600; font-size: 16px; }
    .note { font-size: 12.5px; fill: #57606a; }
    .zone-name { font-size: 12.5px; fill: #57606a; text-anchor: start; letter-spacing: .04em; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #30363d; }
      .zone { fill: #161b22; stroke: #6e7681; }
      .box { fill: #0d1117; stroke: #8b949e; }
      .own { fill: #0c2d4d; stroke: #58a6ff; }
      .line { stroke: #8b949e; }
      .session { stroke: #58a6ff; }
      .head { fill: #8b949e; }
      .session-head { fill: #58a6ff; }
      text { fill: #e6edf3; }
      .note, .zone-name { fill: #9da7b3; }
    }`;

function text(x: number, y: number, content: string, style: string): string {
  return `  <text x="${x}" y="${y}" class="${style}">${content}</text>`;
}

interface Box {
  /** Of its middle. */
  x: number;
  y: number;
  width: number;
  height: number;
  style: 'own' | 'box';
  name: string;
  notes: string[];
}

function box({ x, y, width, height, style, name, notes }: Box): string {
  const left = x - width / 2;
  return [
    `  <rect class="${style}" x="${left}" y="${y}" width="${width}" height="${height}" rx="8"/>`,
    text(x, y + 26, name, 'name'),
    ...notes.map((note, index) => text(x, y + 48 + index * 18, note, 'note')),
  ].join('\n');
}

function zone(x: number, width: number, name: string): string {
  return [
    `  <rect class="zone" x="${x}" y="20" width="${width}" height="290" rx="12"/>`,
    text(x + 14, 42, name, 'zone-name'),
  ].join('\n');
}

const arrow = (path: string) => `  <path class="line" d="${path}" marker-end="url(#head)"/>`;

const marker = (id: string, size: number) =>
  `    <marker id="${id}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="${size}" markerHeight="${size}" ` +
  `orient="auto-start-reverse"><path class="${id}" d="M 0 0 L 10 5 L 0 10 z"/></marker>`;

const parts = [
  `  <rect class="page" x="0.5" y="0.5" width="${WIDTH - 1}" height="${HEIGHT - 1}" rx="14"/>`,
  zone(172, 250, 'GATEWAY (yours, or ngrok’s)'),
  zone(562, 378, 'DEVICE (behind NAT or a firewall)'),
  box({ x: 82, y: 84, width: 116, height: 76, style: 'box', name: 'Client', notes: ['browser, curl,', 'SSH'] }),
  box({
    x: 297,
    y: 60,
    width: 214,
    height: 124,
    style: 'own',
    name: 'Edge',
    notes: ['TLS certificates', 'traffic policy', 'https:// tls:// tcp://'],
  }),
  box({
    x: 660,
    y: 60,
    width: 160,
    height: 124,
    style: 'own',
    name: 'Agent',
    notes: ['keeps tunnels on disk', 'reconnects', 'checks upstreams'],
  }),
  box({ x: 860, y: 84, width: 124, height: 76, style: 'box', name: 'Upstream', notes: ['localhost:8001'] }),
  box({ x: 297, y: 224, width: 214, height: 64, style: 'box', name: 'Management API', notes: ['domains, authtokens'] }),
  box({ x: 660, y: 224, width: 160, height: 64, style: 'box', name: 'Agent API', notes: ['POST /tunnels'] }),
  arrow('M 141 122 H 188'),
  `  <path class="session" d="M 580 122 H 406" marker-start="url(#session-head)" marker-end="url(#session-head)"/>`,
  text(492, 104, 'one TLS session', 'note'),
  text(492, 148, 'opened by the', 'note'),
  text(492, 164, 'agent', 'note'),
  arrow('M 740 122 H 796'),
  arrow('M 297 224 V 186'),
  arrow('M 660 224 V 186'),
];

/** docs/images/overview.svg: from the client to the upstream, readable on light and dark pages. */
export function overviewPicture(): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-labelledby="title">
  <title id="title">A client reaches the edge of the gateway. The agent on the device keeps one TLS session open to the gateway and passes the traffic on to an upstream.</title>
  <style>${STYLE}
  </style>
  <defs>
${marker('head', 7)}
${marker('session-head', 3)}
  </defs>
${parts.join('\n')}
</svg>
`;
}
