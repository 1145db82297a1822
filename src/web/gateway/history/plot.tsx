import type { ComponentChildren, JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { byteSize } from '../../ui/byte-size.ts';
import { linePath } from '../last-day.tsx';
import {
  milliseconds,
  PERCENTILES,
  type Point,
  type Range,
  SHOWN_ENDINGS,
  type ShownEnding,
  sum,
} from './history-model.ts';

/** Space for the numbers of an axis, and for the half of the last label, in pixels. */
const LEFT = 52;
const RIGHT = 10;
const EVENTS = 20;
const BAND = 22;
const TIMES = 20;
const HEIGHTS = { requests: 150, latency: 110, bytes: 110 } as const;
/** Of labels, from one to the next. */
const LABEL = 64;
/** So that short outages of a long time are seen. */
const LEAST = 2;

/** Where points are. All plots of a page have the same places for the same times. */
interface Places {
  readonly width: number;
  /** Width of one point. */
  readonly step: number;
  /** The left edge of a point. */
  readonly x: (at: number) => number;
}

export interface PlotsProps {
  points: readonly Point[];
  range: Range;
  /** The point that is looked at; null: none. */
  chosen: number | null;
  onChoose: (at: number) => void;
  /** Whether it is the history of a gateway, which is online when anything is known. */
  isGateway: boolean;
}

/** What has happened, over time: events, a band of being online, requests, latency, and bytes. */
export function Plots({ points, range, chosen, onChoose, isGateway }: PlotsProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const box = element.current;
    if (box === null) return;
    const measure = () => setWidth(box.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  const step = Math.max(0, width - LEFT - RIGHT) / points.length;
  const places: Places = { width, step, x: (at) => LEFT + at * step };
  const choose = (event: PointerEvent) => {
    const x = event.clientX - (element.current?.getBoundingClientRect().left ?? 0);
    onChoose(Math.min(points.length - 1, Math.max(0, Math.floor((x - LEFT) / step))));
  };
  const used = SHOWN_ENDINGS.filter(({ name }) => points.some(({ endings }) => endings[name] > 0));
  const drawn = { points, places, chosen };
  return (
    <div ref={element} class="plots" onPointerMove={choose} onPointerDown={choose}>
      <Patterns />
      {width > 0 && (
        <>
          <Panel
            title={isGateway ? 'Gateway running' : 'Online'}
            legend={<StateLegend points={points} isGateway={isGateway} />}
          >
            <Drawing {...drawn} height={EVENTS + BAND + TIMES} range={range}>
              <EventMarks {...drawn} />
              <Band {...drawn} />
            </Drawing>
          </Panel>
          <Panel title="Requests" legend={used.map(({ name, label }) => <Key key={name} kind={name} label={label} />)}>
            <Requests {...drawn} range={range} endings={used.map(({ name }) => name)} />
          </Panel>
          <Panel
            title="Latency"
            hint="Logarithmic"
            legend={PERCENTILES.map((name) => <Key key={name} kind={name} label={name} isLine />)}
          >
            <Latency {...drawn} range={range} />
          </Panel>
          <Panel
            title="Bytes"
            legend={
              <>
                <Key kind="sent" label="To clients" isLine />
                <Key kind="received" label="From clients" isLine />
              </>
            }
          >
            <Bytes {...drawn} range={range} />
          </Panel>
          {/* The thumb's middle is above the middle of its point. */}
          <input
            type="range"
            class="chooser"
            aria-label="Time in the plots"
            aria-describedby="chosen-hint"
            aria-valuetext={chosen === null ? 'none chosen' : `${chosen + 1} of ${points.length}`}
            min={0}
            max={points.length - 1}
            value={chosen ?? points.length - 1}
            style={{ marginLeft: `${LEFT + step / 2 - THUMB / 2}px`, width: `${(points.length - 1) * step + THUMB}px` }}
            onInput={(event) => onChoose(Number(event.currentTarget.value))}
            onFocus={() => chosen === null && onChoose(points.length - 1)}
          />
        </>
      )}
    </div>
  );
}

/** Width of the slider's thumb, as the style sheet has it. */
const THUMB = 20;

function Panel(props: {
  title: string;
  hint?: string;
  legend: ComponentChildren;
  children: ComponentChildren;
}): JSX.Element {
  const { title, hint, legend, children } = props;
  return (
    <div class="panel">
      <div class="panel-head">
        <h4>{title}</h4>
        {hint !== undefined && <span class="hint">{hint}</span>}
        <ul class="legend">{legend}</ul>
      </div>
      {children}
    </div>
  );
}

function Key({ kind, label, isLine = false }: { kind: string; label: string; isLine?: boolean }): JSX.Element {
  return (
    <li>
      <svg width="22" height="14" aria-hidden="true">
        {isLine ? (
          <path class={`line ${kind}`} d="M1 7H21" />
        ) : (
          <rect class={`area ${kind}`} x="0.5" y="0.5" width="21" height="13" fill={`url(#area-${kind})`} />
        )}
      </svg>
      {label}
    </li>
  );
}

function StateLegend({ points, isGateway }: Pick<PlotsProps, 'points' | 'isGateway'>): JSX.Element {
  return (
    <>
      <Key kind="online" label={isGateway ? 'Running' : 'Online'} />
      {points.some(({ offline }) => offline > 0) && <Key kind="offline" label="Offline" />}
      {points.some(({ away }) => away > 0) && <Key kind="away" label="No connection" />}
      {points.some(({ unknown }) => unknown > 0) && <Key kind="unknown" label="Not known" />}
      {points.some(({ events }) => events.length > 0) && (
        <li>
          <svg width="14" height="14" aria-hidden="true">
            <path class="mark" d="M7 1l6 6-6 6-6-6z" />
          </svg>
          Events
        </li>
      )}
    </>
  );
}

/** What tells areas apart without their colours. */
const TEXTURES: Readonly<Record<ShownEnding | 'online' | 'offline' | 'away' | 'unknown', string>> = {
  online: '',
  offline: 'M-1 1L1 -1M0 6L6 0M5 7L7 5M-1 5L1 7M0 0L6 6M5 -1L7 1',
  away: 'M0 1.5H6M0 4.5H6',
  unknown: 'M-1 1L1 -1M0 6L6 0M5 7L7 5',
  successful: '',
  redirections: 'M0 1.5H6',
  informational: 'M1.5 1.5h0.1M4.5 4.5h0.1',
  other: 'M3 0V6',
  client_errors: 'M-1 1L1 -1M0 6L6 0M5 7L7 5',
  refused: 'M0 1.5H6M1.5 0V6',
  server_errors: 'M-1 5L1 7M0 0L6 6M5 -1L7 1',
  failed: 'M-1 1L1 -1M0 6L6 0M5 7L7 5M-1 5L1 7M0 0L6 6M5 -1L7 1',
};

function Patterns(): JSX.Element {
  return (
    <svg class="patterns" width="0" height="0" aria-hidden="true">
      <defs>
        {Object.entries(TEXTURES).map(([kind, texture]) => (
          <pattern
            key={kind}
            id={`area-${kind}`}
            class={`pattern ${kind}`}
            width="6"
            height="6"
            patternUnits="userSpaceOnUse"
          >
            <rect class="ground" width="6" height="6" />
            {texture !== '' && <path class="texture" d={texture} />}
          </pattern>
        ))}
      </defs>
    </svg>
  );
}

interface Drawn {
  points: readonly Point[];
  places: Places;
  chosen: number | null;
}

/** A drawing with the times below, and what is not known hatched. Screen readers have the table. */
function Drawing(props: Drawn & { height: number; range: Range; children: ComponentChildren }): JSX.Element {
  const { points, places, chosen, height, range, children } = props;
  const { width, step, x } = places;
  const bottom = height - TIMES;
  return (
    <svg {...{ width, height }} aria-hidden="true">
      {children}
      <path
        class="guide"
        d={points.map(({ events }, at) => (events.length > 0 ? `M${middle(places, at)} 0V${bottom}` : '')).join('')}
      />
      {chosen !== null && <rect class="cursor" x={x(chosen)} y={0} width={Math.max(1, step)} height={bottom} />}
      {labelsOf(points, places, range).map(({ at, text }) => (
        <g key={at}>
          <path class="grid" d={`M${x(at).toFixed(1)} ${bottom}v4`} />
          <text class="tick" x={x(at)} y={height - 4} text-anchor="middle">
            {text}
          </text>
        </g>
      ))}
    </svg>
  );
}

function middle({ x, step }: Places, at: number): string {
  return (x(at) + step / 2).toFixed(1);
}

/** What is not known at all, behind what is drawn: it is no zero. */
function Unknown({ points, places, height }: Omit<Drawn, 'chosen'> & { height: number }): JSX.Element {
  const d = points.map(({ online, offline, unknown }, at) =>
    unknown > 0 && online + offline === 0 ? box(places.x(at), 0, places.step, height) : '',
  );
  return <path class="area unknown" fill="url(#area-unknown)" d={d.join('')} />;
}

function box(x: number, y: number, width: number, height: number): string {
  const [w, h] = [width.toFixed(2), height.toFixed(2)];
  return `M${x.toFixed(2)} ${y.toFixed(2)}h${w}v${h}h-${w}z`;
}

/** Whole steps in their state; of a mixed one, as much of its height as of its time. */
function Band({ points, places }: Drawn): JSX.Element {
  const paths = { online: '', offline: '', away: '', unknown: '' };
  for (const [at, { online, offline, away, unknown }] of points.entries()) {
    const rest = Math.max(0, away - offline);
    let bottom = EVENTS + BAND;
    const total = Math.max(1, online + offline + unknown);
    const states = [
      ['online', online],
      ['unknown', Math.max(0, unknown - rest)],
      ['away', Math.min(away, offline + unknown)],
      ['offline', Math.max(0, offline - away)],
    ] as const;
    const least = states.map(([, seconds]) => (seconds > 0 ? Math.max(LEAST, (BAND * seconds) / total) : 0));
    const scale = BAND / Math.max(BAND, sum(least));
    for (const [place, [state]] of states.entries()) {
      const height = (least[place] ?? 0) * scale;
      if (height === 0) continue;
      paths[state] += box(places.x(at), bottom - height, places.step, height);
      bottom -= height;
    }
  }
  return (
    <>
      {Object.entries(paths).map(([state, d]) => (
        <path key={state} class={`area ${state}`} fill={`url(#area-${state})`} d={d} />
      ))}
    </>
  );
}

function EventMarks({ points, places }: Drawn): JSX.Element {
  return (
    <>
      {points.map(({ at, events }, place) =>
        events.length === 0 ? null : (
          <g key={at}>
            <path class="mark" d={`M${middle(places, place)} 3l6 6-6 6-6-6z`} />
            {events.length > 1 && places.step >= 26 && (
              <text class="tick" x={Number(middle(places, place)) + 9} y={13}>
                {events.length}
              </text>
            )}
          </g>
        ),
      )}
    </>
  );
}

type PanelDrawn = Drawn & { range: Range };

function Requests({ endings, ...drawn }: PanelDrawn & { endings: readonly ShownEnding[] }): JSX.Element {
  const { points, places } = drawn;
  const height = HEIGHTS.requests;
  const most = Math.max(...points.map(({ endings: each }) => sum(Object.values(each))));
  const axis = linearAxis(most, height, niceNumber);
  const gap = places.step > 6 ? 1 : 0;
  const paths = new Map<ShownEnding, string>();
  for (const [at, point] of points.entries()) {
    let below = 0;
    for (const name of endings) {
      const value = point.endings[name];
      if (value === 0) continue;
      const [top, bottom] = [axis.y(below + value), axis.y(below)];
      // What is rare is seen beside what is not.
      const tall = Math.max(bottom - top, 1);
      paths.set(name, (paths.get(name) ?? '') + box(places.x(at) + gap, bottom - tall, places.step - 2 * gap, tall));
      below += value;
    }
  }
  return (
    <Drawing {...drawn} height={height + TIMES}>
      <Unknown {...drawn} height={height} />
      <Grid {...axis} places={places} text={(value) => shortNumber(value)} />
      {[...paths].map(([name, d]) => (
        <path key={name} class={`area ${name}`} fill={`url(#area-${name})`} d={d} />
      ))}
    </Drawing>
  );
}

function Latency(drawn: PanelDrawn): JSX.Element {
  const { points, places } = drawn;
  const height = HEIGHTS.latency;
  const most = Math.max(10, ...points.map(({ latency }) => latency?.p99 ?? 0));
  const decades = Math.ceil(Math.log10(most));
  const y = (ms: number) => height - (Math.log10(Math.max(1, ms)) / decades) * (height - 8);
  const ticks = Array.from({ length: decades + 1 }, (_, power) => 10 ** power);
  return (
    <Drawing {...drawn} height={height + TIMES}>
      <Unknown {...drawn} height={height} />
      <Grid y={y} ticks={ticks} places={places} text={milliseconds} />
      {PERCENTILES.map((name) => (
        <Line
          key={name}
          kind={name}
          places={places}
          values={points.map(({ latency }) => latency && y(latency[name]))}
        />
      ))}
    </Drawing>
  );
}

function Bytes(drawn: PanelDrawn): JSX.Element {
  const { points, places } = drawn;
  const height = HEIGHTS.bytes;
  const most = Math.max(...points.map(({ received, sent }) => Math.max(received, sent)));
  const axis = linearAxis(most, height, niceBytes);
  return (
    <Drawing {...drawn} height={height + TIMES}>
      <Unknown {...drawn} height={height} />
      <Grid {...axis} places={places} text={byteSize} />
      {(['sent', 'received'] as const).map((kind) => (
        <Line
          key={kind}
          kind={kind}
          places={places}
          values={points.map((point) => (point.online + point.offline > 0 ? axis.y(point[kind]) : null))}
        />
      ))}
    </Drawing>
  );
}

function Line({
  kind,
  places,
  values,
}: {
  kind: string;
  places: Places;
  values: readonly (number | null)[];
}): JSX.Element {
  const { step, x } = places;
  return (
    <path class={`line ${kind}`} d={linePath(values.map((y, at) => (y === null ? null : [x(at) + step / 2, y])))} />
  );
}

interface Axis {
  readonly y: (value: number) => number;
  readonly ticks: readonly number[];
}

function linearAxis(most: number, height: number, nice: (value: number) => number): Axis {
  const top = nice(Math.max(1, most));
  return { y: (value) => height - (value / top) * (height - 8), ticks: top === 1 ? [0, 1] : [0, top / 2, top] };
}

function Grid({ y, ticks, places, text }: Axis & { places: Places; text: (value: number) => string }): JSX.Element {
  return (
    <>
      {ticks.map((value) => (
        <g key={value}>
          <path class="grid" d={`M${LEFT} ${y(value).toFixed(1)}H${places.width - RIGHT}`} />
          <text class="tick" x={LEFT - 6} y={y(value) + 4} text-anchor="end">
            {text(value)}
          </text>
        </g>
      ))}
    </>
  );
}

/** The next of 1, 2, 4, 10, 20, … */
function niceNumber(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 10].find((factor) => factor * power >= value) ?? 10) * power;
}

/** The next power of two. */
function niceBytes(value: number): number {
  return 2 ** Math.max(1, Math.ceil(Math.log2(value)));
}

function shortNumber(value: number): string {
  return value.toLocaleString('en', { notation: 'compact' });
}

interface Label {
  readonly at: number;
  readonly text: string;
}

/** The times below a plot: round ones, as many as there is room for. */
function labelsOf(points: readonly Point[], { width, step, x }: Places, { step: unit, ms }: Range): Label[] {
  const room = Math.max(1, Math.floor((width - LEFT) / LABEL));
  const isYear = unit === 'day' && ms > 100 * 86_400_000;
  const wanted = points.flatMap(({ at }, place): (Label & { value: number })[] => {
    const date = new Date(at);
    if (unit === 'minute')
      return date.getMinutes() % 5 === 0 ? [{ at: place, text: clock(date), value: date.getMinutes() }] : [];
    if (unit === 'hour') return [{ at: place, text: clock(date), value: date.getHours() }];
    if (!isYear)
      return [{ at: place, text: utc(date, { day: 'numeric', month: 'short' }), value: points.length - 1 - place }];
    return date.getUTCDate() === 1
      ? [{ at: place, text: utc(date, { month: 'short' }), value: date.getUTCMonth() }]
      : [];
  });
  const every = STRIDES[unit === 'day' && isYear ? 'month' : unit].find(
    (stride) => wanted.filter(({ value }) => value % stride === 0).length <= room,
  );
  const isCut = ({ at }: Label) => x(at) < LEFT - 1 || x(at) > width - RIGHT - 12 || step === 0;
  return wanted.filter(({ value }) => value % (every ?? 1_000) === 0).filter((label) => !isCut(label));
}

const STRIDES = { minute: [5, 10, 15, 30, 60], hour: [1, 2, 3, 6, 12], day: [1, 2, 5, 7, 10, 15], month: [1, 2, 3, 6] };

const clock = (date: Date) => date.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
const utc = (date: Date, options: Intl.DateTimeFormatOptions) =>
  date.toLocaleDateString('en-GB', { ...options, timeZone: 'UTC' });
