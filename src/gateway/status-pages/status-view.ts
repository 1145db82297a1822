import { hash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { escapeHtml, htmlPage } from '../../lib/http/notice-page.ts';
import type { StatusFile, StatusPageContent } from '../../traffic-policy/ports.ts';
import { type EndpointState, SHOWN_DAYS, type StatusDay } from './endpoint-states.ts';

const MAX_LISTED = 30;

const STYLE = `:root{color-scheme:light dark;background:Canvas;color:CanvasText;--up:#17774f;--failing:#8a5a00;--down:#b3261e;--unknown:#5f6770;--line:#d0d5da}
@media (prefers-color-scheme:dark){:root{--up:#45c08f;--failing:#e0ad3a;--down:#ff7b72;--unknown:#9aa4ae;--line:#444c54}}
body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:0 auto;padding:2em 1em;overflow-wrap:anywhere}
h1{font-size:1.75em;line-height:1.25;margin:0 0 .25em}
h2{font-size:1.1em;margin:0;flex:1 1 auto}
p{margin:.5em 0}
.all{border-left:.4em solid;padding:.25em 0 .25em .75em;font-size:1.25em}
.head{display:flex;flex-wrap:wrap;gap:0 1em;align-items:baseline}
.state{font-weight:600;white-space:nowrap}
.up{color:var(--up)}.failing{color:var(--failing)}.down{color:var(--down)}.unknown{color:var(--unknown)}
.all{border-color:currentColor}
ul.list{list-style:none;margin:1.5em 0;padding:0}
ul.list>li{border-top:1px solid var(--line);padding:1em 0}
.bar{display:block;width:100%;height:32px;margin:.5em 0 .25em}
.bar path{fill:currentColor}
.ends{display:flex;justify-content:space-between;gap:1em;font-size:.875em;margin:0}
summary{min-height:44px;line-height:44px;cursor:pointer;font-size:.875em}
table{border-collapse:collapse;font-size:.875em;width:100%;overflow-wrap:normal}
th,td:nth-child(2){white-space:nowrap}
th,td{text-align:left;padding:.25em .75em .25em 0;border-top:1px solid var(--line)}
.legend{display:flex;flex-wrap:wrap;gap:.25em 1.25em;font-size:.875em;padding:0;list-style:none}
.legend svg{width:8px;height:16px;vertical-align:-2px;margin-right:.4em}`;

const HEADERS = [
  ...['content-type', 'text/html; charset=utf-8'],
  ...['vary', 'accept-encoding', 'x-content-type-options', 'nosniff', 'referrer-policy', 'no-referrer'],
  ...[
    'content-security-policy',
    `default-src 'none'; style-src 'sha256-${hash('sha256', STYLE, 'base64')}'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
  ],
];

const LABELS: Readonly<Record<EndpointState, string>> = {
  up: 'Available',
  failing: 'Some requests fail',
  down: 'Unavailable',
  unknown: 'Not known',
};

/** Signs besides the colours. */
const SIGNS: Readonly<Record<EndpointState, string>> = { up: '✓', failing: '!', down: '✕', unknown: '?' };

/** The part of a day's height that is filled, from where on; so that nobody needs the colours. */
const BARS: Readonly<Record<EndpointState, readonly [top: number, height: number]>> = {
  up: [0, 32],
  failing: [12, 20],
  down: [24, 8],
  unknown: [15, 2],
};
const STATES = Object.keys(BARS) as readonly EndpointState[];
const DAY_WIDTH = 4;

interface Status {
  /** In the order of the endpoints. */
  readonly states: readonly EndpointState[];
  readonly days: readonly (readonly StatusDay[])[];
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** The page, ready to be sent. */
export async function statusFile(content: StatusPageContent, status: Status): Promise<StatusFile> {
  const body = Buffer.from(statusHtml(content, status));
  const digest = hash('sha256', body, 'base64url').slice(0, 22);
  const zipped = await promisify(gzip)(body);
  return { headers: HEADERS, plain: { tag: `"${digest}"`, body }, zipped: { tag: `"${digest}-gz"`, body: zipped } };
}

/** The page loads nothing and runs nothing. */
function statusHtml({ title, text, endpoints }: StatusPageContent, { states, days, now }: Status): string {
  const worst = (['down', 'failing', 'unknown'] as const).find((state) => states.includes(state)) ?? 'up';
  const at = new Date(now).toISOString();
  const items = endpoints.map(({ title: name }, place) => item(name, states[place] ?? 'unknown', days[place] ?? []));
  return htmlPage(
    title,
    `${text === '' ? '' : `<p>${escapeHtml(text)}</p>\n`}<p class="all ${worst}"><strong>${summary(states)}</strong></p>
<p><small>As of <time datetime="${at}">${at.slice(0, 10)} ${at.slice(11, 16)} UTC</time>. Reload the page for the present state.</small></p>
<ul class="list">
${items.join('\n')}
</ul>
${days.every((each) => each.length === 0) ? '' : `<ul class="legend" aria-label="What the bars mean">${STATES.map(legend).join('')}</ul>\n`}`,
    STYLE,
  ).replace('<meta name="viewport"', '<link rel="icon" href="data:,"><meta name="viewport"');
}

function summary(states: readonly EndpointState[]): string {
  const count = (state: EndpointState) => states.filter((each) => each === state).length;
  const total = states.length;
  const of = (some: number) => (total === 1 ? 'It' : some === total ? 'All' : `${some} of ${total}`);
  const are = (some: number) => (some === 1 || total === 1 ? 'is' : 'are');
  if (count('up') === total) return total === 1 ? 'It is available.' : 'All are available.';
  const [down, failing, unknown] = [count('down'), count('failing'), count('unknown')];
  return [
    ...(down > 0 ? [`${of(down)} ${are(down)} unavailable.`] : []),
    ...(failing > 0 ? [`Some requests${failing === total ? '' : ` to ${failing} of ${total}`} fail.`] : []),
    ...(unknown > 0 ? [`Nothing is known${unknown === total ? '' : ` of ${unknown} of ${total}`} at the moment.`] : []),
  ].join(' ');
}

function item(name: string, state: EndpointState, days: readonly StatusDay[]): string {
  const head = `<div class="head"><h2>${escapeHtml(name)}</h2><span class="state ${state}"><span aria-hidden="true">${SIGNS[state]} </span>${LABELS[state]}</span></div>`;
  if (days.length === 0) return `<li>${head}</li>`;
  const known = days.filter((day) => day.known > 0);
  const share = shareOf(known);
  const shown = share === null ? 'not known' : `${percent(share)} available`;
  const bad = known.filter((day) => day.state !== 'up');
  const label = `The last ${SHOWN_DAYS} days: ${shown}${known.length < days.length ? `; nothing is known of ${days.length - known.length} days` : ''}`;
  return `<li>${head}
<svg class="bar" role="img" aria-label="${label}" viewBox="0 0 ${days.length * DAY_WIDTH} 32" preserveAspectRatio="none">${STATES.map((each) => bars(days, each)).join('')}</svg>
<p class="ends"><span>${SHOWN_DAYS} days ago</span><span>${shown}</span><span>Today</span></p>${bad.length === 0 ? '' : dayTable(bad)}</li>`;
}

/** All days of one state are one path: the page stays small. */
function bars(days: readonly StatusDay[], state: EndpointState): string {
  const [top, height] = BARS[state];
  const path = days
    .map((day, place) =>
      day.state === state ? `M${place * DAY_WIDTH} ${top}h${DAY_WIDTH - 1}v${height}h-${DAY_WIDTH - 1}z` : '',
    )
    .join('');
  return path === '' ? '' : `<path class="${state}" d="${path}"/>`;
}

function dayTable(days: readonly StatusDay[]): string {
  const newest = [...days].reverse().slice(0, MAX_LISTED);
  const rows = newest.map(({ at, known, online, failed }) => {
    const date = new Date(at).toISOString().slice(0, 10);
    const errors = failed > 0 ? `${Math.round(failed * 100)} % of requests failed` : '';
    return `<tr><th scope="row">${date}</th><td>${percent(online / known)}</td><td>${errors}</td></tr>`;
  });
  const what = `${days.length} ${days.length === 1 ? 'day' : 'days'} with outages or errors`;
  const more = days.length > MAX_LISTED ? `, the latest ${MAX_LISTED}` : '';
  return `<details><summary>${what}${more}</summary><table><thead><tr><th scope="col">Day (UTC)</th><th scope="col">Available</th><th scope="col">Errors</th></tr></thead><tbody>${rows.join('')}</tbody></table></details>`;
}

function legend(state: EndpointState): string {
  const texts = {
    up: 'available',
    failing: 'with outages or errors',
    down: 'unavailable for most of the day',
    unknown: 'not known',
  };
  const [top, height] = BARS[state];
  return `<li class="${state}"><svg aria-hidden="true" viewBox="0 0 8 32" preserveAspectRatio="none"><path fill="currentColor" d="M0 ${top}h8v${height}h-8z"/></svg>${texts[state]}</li>`;
}

/** The share of the known time that was online; null: no time is known. */
function shareOf(days: readonly StatusDay[]): number | null {
  const known = days.reduce((sum, day) => sum + day.known, 0);
  return known === 0 ? null : days.reduce((sum, day) => sum + day.online, 0) / known;
}

/** An outage is never rounded away. */
const percent = (share: number): string => `${(Math.floor(share * 10_000) / 100).toFixed(2).replace(/\.?0+$/, '')} %`;
