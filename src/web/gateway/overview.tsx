import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Figures } from '../../gateway/api/dashboard/live-feed.ts';
import type { Device } from '../../management/resources/device.ts';
import type { ReservedDomain } from '../../management/resources/reserved-domain.ts';
import { ButtonLink } from '../ui/button.tsx';
import { Badge, Notice, ProblemNotice, type Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { spanSince } from '../ui/time-span.ts';
import { PagedList } from './paged-list.ts';
import { devicesSection, stateOf } from './sections/devices.tsx';
import { certificateOf, domainsSection } from './sections/domains.tsx';
import { gateway } from './strings.ts';

const text = gateway.overview;
/** So many devices and domains are checked. */
const CHECKED = 1_000;
const SHOWN = 20;

interface Problem {
  key: string;
  tone: Tone;
  label: string;
  title: string;
  detail: string;
  link: string;
}

/** Problems first, then what is online. */
export function Overview({
  figures,
  stamp,
}: {
  figures: ReadonlySignal<Figures | null>;
  stamp: ReadonlySignal<string>;
}): JSX.Element {
  const [devices] = useState(() => new PagedList<Device>(devicesSection.path, devicesSection.listKey));
  const [domains] = useState(() => new PagedList<ReservedDomain>(domainsSection.path, domainsSection.listKey));
  useSignalEffect(() => {
    stamp.value;
    for (const list of [devices, domains]) void list.reload().then(() => list.loadUpTo(CHECKED));
  });
  const problems = [...domains.items.value.flatMap(problemOfDomain), ...devices.items.value.flatMap(problemOfDevice)];
  const lists = [devices, domains];
  const isFirstLook = lists.some(({ items, state }) => items.value.length === 0 && state.value === 'loading');
  const failure = lists.map(({ problem }) => problem.value).find((problem) => problem !== null);
  const isPartial = lists.some(({ items, state }) => items.value.length >= CHECKED && state.value === 'more');
  return (
    <>
      <section aria-labelledby="problems">
        <h2 id="problems">{text.problems}</h2>
        {failure && <ProblemNotice title={gateway.list.failed} problem={failure} />}
        {isFirstLook && <p class="with-spinner">{text.checking}</p>}
        {!isFirstLook && !failure && problems.length === 0 && <Notice tone="good">{text.sound}</Notice>}
        <ul class="problems">
          {problems.slice(0, SHOWN).map(({ key, tone, label, title, detail, link }) => (
            <li key={key} class="card">
              <Badge tone={tone}>{label}</Badge>
              <div>
                <strong>{title}</strong>
                <p>{detail}</p>
              </div>
              <ButtonLink href={link} label={`${text.open}: ${title}`}>
                {text.open}
              </ButtonLink>
            </li>
          ))}
        </ul>
        {problems.length > SHOWN && <p class="hint">{text.more(problems.length - SHOWN)}</p>}
        {isPartial && <p class="hint">{text.first(CHECKED)}</p>}
      </section>
      {figures.value && <FigureList figures={figures.value} />}
    </>
  );
}

function problemOfDomain(domain: ReservedDomain): Problem[] {
  const { tone, label, detail } = certificateOf(domain);
  if (tone !== 'bad') return [];
  const link = linkTo('domains', domain.id, 'records');
  return [{ key: domain.id, tone, label, title: text.certificate(domain.domain), detail: detail ?? '', link }];
}

function problemOfDevice(device: Device): Problem[] {
  const { id, name, last_seen_at, created_at } = device;
  const state = stateOf(device);
  const label = gateway.devices.status[state];
  if (state === 'pending') {
    const link = linkTo('devices', id, 'approve');
    const detail = text.pendingDetail(spanSince(created_at));
    return [{ key: id, tone: 'warning', label, title: text.pending(name), detail, link }];
  }
  if (state !== 'offline' && state !== 'never') return [];
  const detail = last_seen_at === null ? text.neverOnline : text.offlineSince(spanSince(last_seen_at));
  return [{ key: id, tone: 'bad', label, title: text.offline(name), detail, link: linkTo('devices') }];
}

function FigureList({ figures }: { figures: Figures }): JSX.Element {
  const all: [string, number][] = [
    [text.agents, figures.agents],
    [text.endpoints, figures.endpoints],
    [text.connections, figures.connections],
    [text.responses, figures.responses],
    [text.errors, figures.errors],
    [text.upstreamFailures, figures.upstreamFailures],
    [text.refused, figures.refusedByPolicy],
  ];
  return (
    <section aria-labelledby="figures">
      <h2 id="figures">{text.figures}</h2>
      <dl class="card figures">
        {all.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value.toLocaleString('en')}</dd>
          </div>
        ))}
      </dl>
      <p class="hint">{text.sinceStart}</p>
    </section>
  );
}
