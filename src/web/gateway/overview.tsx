import { type ReadonlySignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Figures } from '../../gateway/api/dashboard/live-feed.ts';
import { ButtonLink } from '../ui/button.tsx';
import { PlusIcon } from '../ui/icons.tsx';
import { Badge, EmptyState, Notice, ProblemNotice } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { useTitle } from '../ui/title.ts';
import { PagedList } from './paged-list.ts';
import { findProblems, type Problem } from './problems.ts';
import type { Item, Section } from './section.ts';
import { authoritiesSection } from './sections/certificate-authorities.tsx';
import { devicesSection } from './sections/devices.tsx';
import { domainsSection } from './sections/domains.tsx';
import { certificatesSection } from './sections/tls-certificates.tsx';
import { edgesSection } from './sections/tls-edges.tsx';
import { tunnelGroupsSection } from './sections/tunnel-groups.tsx';
import { gateway } from './strings.ts';

const text = gateway.overview;
/** So many items of each kind are checked. */
const CHECKED = 1_000;
const SHOWN = 20;

function listOf<T extends Item>({ path, listKey }: Section<T>): PagedList<T> {
  return new PagedList<T>(path, listKey);
}

function checkedLists() {
  return {
    devices: listOf(devicesSection),
    domains: listOf(domainsSection),
    certificates: listOf(certificatesSection),
    authorities: listOf(authoritiesSection),
    edges: listOf(edgesSection),
    tunnelGroups: listOf(tunnelGroupsSection),
  };
}

/** Problems first, then what is online. */
export function Overview({
  figures,
  stamp,
}: {
  figures: ReadonlySignal<Figures | null>;
  stamp: ReadonlySignal<string>;
}): JSX.Element {
  const [lists] = useState(checkedLists);
  useTitle(gateway.pageTitle(gateway.sections.overview));
  const all = Object.values(lists);
  useSignalEffect(() => {
    stamp.value;
    for (const list of all) void list.refresh(CHECKED);
  });
  const { devices, domains, certificates, authorities, edges, tunnelGroups } = lists;
  const problems = findProblems({
    devices: devices.items.value,
    domains: domains.items.value,
    certificates: certificates.items.value,
    authorities: authorities.items.value,
    edges: edges.items.value,
    tunnelGroups: tunnelGroups.state.value === 'complete' ? tunnelGroups.items.value : null,
  });
  const isFirstLook = all.some(({ items, state }) => items.value.length === 0 && state.value === 'loading');
  const failure = all.map(({ problem }) => problem.value).find((problem) => problem !== null);
  const isPartial = all.some(({ items, state }) => items.value.length >= CHECKED && state.value === 'more');
  const isNew = domains.items.value.length === 0 && devices.items.value.length === 0;
  return (
    <>
      <section aria-labelledby="problems">
        <h2 id="problems">{text.problems}</h2>
        {failure && <ProblemNotice title={gateway.list.failed} problem={failure} />}
        {isFirstLook && <p class="with-spinner">{text.checking}</p>}
        {!isFirstLook && !failure && problems.length === 0 && <Notice tone="good">{text.sound}</Notice>}
        <ProblemList problems={problems.slice(0, SHOWN)} />
        {problems.length > SHOWN && <p class="hint">{text.more(problems.length - SHOWN)}</p>}
        {isPartial && <p class="hint">{text.first(CHECKED)}</p>}
      </section>
      {figures.value && <FigureList figures={figures.value} />}
      {!isFirstLook && !failure && isNew && (
        <EmptyState title={text.newTitle}>
          <p>{text.newText}</p>
          <ButtonLink kind="primary" href={linkTo('add-site')}>
            <PlusIcon />
            {gateway.sections['add-site']}
          </ButtonLink>
        </EmptyState>
      )}
    </>
  );
}

function ProblemList({ problems }: { problems: readonly Problem[] }): JSX.Element {
  return (
    <ul class="problems">
      {problems.map(({ key, tone, label, title, detail, link }) => (
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
  );
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
