import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Figures } from '../../gateway/api/dashboard/dashboard-feed.ts';
import type { DashboardOverview } from '../../gateway/api/dashboard/overview.ts';
import type { ApiProblem } from '../ui/api.ts';
import { ButtonLink } from '../ui/button.tsx';
import { PlusIcon } from '../ui/icons.tsx';
import { Badge, EmptyState, Notice, ProblemNotice, type Tone } from '../ui/notice.tsx';
import { linkTo, useTitle } from '../ui/router.ts';
import { attempt } from '../ui/submission.ts';
import { ago } from '../ui/time-span.ts';
import { dateOf } from './cells.tsx';
import { paced } from './paged-list.ts';
import { type ProblemGroup, problemGroups } from './problems.ts';
import { pageTitle } from './section.ts';
import { api, type News } from './session.ts';

const REFRESH_MS = 5_000;
type Gateway = DashboardOverview['gateways'][number];
const STATES: Record<Gateway['state'], [Tone, string]> = {
  serving: ['good', 'Online'],
  draining: ['warning', 'Draining'],
  silent: ['bad', 'Silent'],
};

/** Problems first, then what is online. */
export function Overview({
  figures,
  news,
}: {
  figures: ReadonlySignal<Figures | null>;
  news: ReadonlySignal<News>;
}): JSX.Element {
  useTitle(pageTitle('Overview'));
  const overview = useSignal<DashboardOverview | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const [refresh] = useState(() =>
    paced(() =>
      attempt(problem, async () => {
        overview.value = await api<DashboardOverview>('GET', '/dashboard/overview');
      }),
    ),
  );
  useSignalEffect(() => {
    news.value;
    void refresh();
  });
  // Nobody announces that a disk is full, or that a gateway has fallen silent.
  useEffect(() => {
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);
  const known = overview.value;
  const isCluster = known !== null && known.gateways.length > 0;
  const groups = known && problemGroups(known.attention);
  const silent = known?.gateways.filter(({ state }) => state === 'silent') ?? [];
  return (
    <>
      <section aria-labelledby="problems">
        <h2 id="problems">Needs attention</h2>
        {problem.value && <ProblemNotice title="The list could not be loaded" problem={problem.value} />}
        {!known && !problem.value && <p class="with-spinner">Checking devices, certificates and edges…</p>}
        {groups?.length === 0 && silent.length === 0 && known?.conditions.length === 0 && (
          <Notice tone="good">No problems found.</Notice>
        )}
        <ul class="problems">
          {known?.conditions.map(({ id, severity, message, remedy, gateways }) => (
            <li key={`${id} ${gateways.join()}`} class="card">
              <Badge tone={severity === 'critical' ? 'bad' : 'warning'}>Gateway</Badge>
              <div>
                <strong>{capitalized(message)}</strong>
                <p>{capitalized(remedy)}.</p>
                {gateways.length > 0 && (
                  <p class="hint">
                    {gateways.length === 1 ? 'Gateway' : 'Gateways'}: {gateways.join(', ')}
                  </p>
                )}
              </div>
            </li>
          ))}
          {silent.map(({ id, address, silentSeconds }) => (
            <li key={id} class="card">
              <Badge tone={STATES.silent[0]}>{STATES.silent[1]}</Badge>
              <div>
                <strong>The gateway {address} is silent</strong>
                <p>
                  Last heard of {Math.round(silentSeconds)} s ago. Check that it runs, and that it reaches the shared
                  database.
                </p>
              </div>
            </li>
          ))}
          {groups?.map((group) => (
            <Group key={group.kind} group={group} />
          ))}
        </ul>
        {known && !known.hasMessageRules && known.devices > 0 && (
          <p class="hint">
            Nobody is told when something goes wrong. <a href={linkTo('event-destinations')}>Set up messages</a> by
            email or to a chat program.
          </p>
        )}
        {known && (
          <p class="hint">
            {known.lastBackupAt === null ? 'No backup yet.' : `Last backup: ${ago(known.lastBackupAt)}.`}
          </p>
        )}
      </section>
      {known?.caChange && <CaProgress change={known.caChange} />}
      {known && known.gateways.length > 0 && <GatewayList gateways={known.gateways} />}
      {figures.value && <FigureList figures={figures.value} isCluster={isCluster} />}
      {known?.devices === 0 && known.domains === 0 && (
        <EmptyState title="Start here">
          <p>A site is a place with devices: a domain, and the permission to use its names.</p>
          <ButtonLink kind="primary" href={linkTo('add-site')}>
            <PlusIcon />
            Add a site
          </ButtonLink>
        </EmptyState>
      )}
    </>
  );
}

function Group({ group: { tone, label, first, more, all, where } }: { group: ProblemGroup }): JSX.Element {
  return (
    <>
      {first.map(({ id, title, detail, link }) => (
        <li key={id} class="card">
          <Badge tone={tone}>{label}</Badge>
          <div>
            <strong>{title}</strong>
            <p>{detail}</p>
          </div>
          <ButtonLink href={link} label={`Open: ${title}`}>
            Open
          </ButtonLink>
        </li>
      ))}
      {more > 0 && (
        <li>
          <a href={all}>
            And {more.toLocaleString('en')} more: {where}
          </a>
        </li>
      )}
    </>
  );
}

/** News rather than a problem: devices follow within a day, on metered links within a week. */
function CaProgress({
  change: { since, ends_at, followed, missing },
}: {
  change: NonNullable<DashboardOverview['caChange']>;
}): JSX.Element {
  const more = missing.total - missing.first.length;
  return (
    <section aria-labelledby="ca-change">
      <h2 id="ca-change">Change of the gateway's CA</h2>
      <p>
        {followed.toLocaleString('en')} of {counted(followed + missing.total, 'device')} trust the next CA, which was
        created {ago(since)}.
      </p>
      {missing.total > 0 && (
        <>
          <p>
            Not yet: {missing.first.join(', ')}
            {more > 0 && (
              <>
                {' '}
                and {more.toLocaleString('en')} more, which <code>device-agent gateway ca --json</code> lists
              </>
            )}
            .
          </p>
          <p class="hint">
            Devices that are online follow within a day, on a metered link within a week. Those that have not followed
            are lost when the present CA ends.
          </p>
        </>
      )}
      <p class="hint">
        The present CA ends{ends_at === null ? ' with' : `: ${dateOf(ends_at)}, or earlier with`}{' '}
        <code>device-agent gateway ca retire</code>.
      </p>
    </section>
  );
}

function GatewayList({ gateways }: { gateways: readonly Gateway[] }): JSX.Element {
  return (
    <section aria-labelledby="gateways">
      <h2 id="gateways">Gateways</h2>
      <ul class="gateways">
        {gateways.map(({ id, address, state, version, sessions, endpoints, silentSeconds, behind }) => (
          <li key={id} class="card">
            <Badge tone={STATES[state][0]}>{STATES[state][1]}</Badge>
            <strong>{address}</strong>
            <span>
              {counted(sessions, 'session')}, {counted(endpoints, 'endpoint')}
            </span>
            <span class="hint">
              {state === 'silent' ? `Silent for ${Math.round(silentSeconds)} s` : `Version ${version}`}
              {behind > 0 && `, ${counted(behind, 'change')} behind`}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function capitalized(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function counted(count: number, what: string): string {
  return `${count.toLocaleString('en')} ${what}${count === 1 ? '' : 's'}`;
}

function FigureList({ figures, isCluster }: { figures: Figures; isCluster: boolean }): JSX.Element {
  const all: [string, number][] = [
    ['Agents online', figures.agents],
    ['Endpoints online', figures.endpoints],
    ['Open connections', figures.connections],
    ['Responses', figures.responses],
    ['Server errors (5xx)', figures.errors],
    ['Upstream failures', figures.upstreamFailures],
    ['Refused by policies', figures.refusedByPolicy],
  ];
  return (
    <section aria-labelledby="figures">
      <div class="section-head">
        <h2 id="figures">Right now</h2>
        <ButtonLink href={linkTo('history')}>History</ButtonLink>
      </div>
      <dl class="card figures">
        {all.map(([label, value]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd>{value.toLocaleString('en')}</dd>
          </div>
        ))}
      </dl>
      <p class="hint">Counted since {isCluster ? 'each gateway' : 'the gateway'} started.</p>
      {figures.missing.length > 0 && (
        <p class="hint">Without the traffic of {figures.missing.join(', ')}: no answer.</p>
      )}
    </section>
  );
}
