import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { ApiProblem } from '../ui/api.ts';
import { ButtonLink } from '../ui/button.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { goTo, linkTo, route, useTitle } from '../ui/router.ts';
import { attempt } from '../ui/submission.ts';
import { forgetNames } from './item-link.tsx';
import { isOutdated } from './paged-list.ts';
import { type Fact, type Item, pageTitle, type Section } from './section.ts';
import { api, type News } from './session.ts';

export interface ItemViewProps<T extends Item> {
  section: Section<T>;
  id: string;
  news: ReadonlySignal<News>;
  /** Called after a change, with whether the item still exists. */
  onChange: (exists: boolean) => void;
}

/** The page of an item: its members, what can be done with it, and the dialog of an action. Give it the id as `key`. */
export function ItemView<T extends Item>({ section, id, news, onChange }: ItemViewProps<T>): JSX.Element {
  const item = useSignal<T | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  // One after another, so that the last one is shown.
  const loads = useRef<Promise<unknown>>(Promise.resolve());
  const load = async () => {
    const loading = loads.current.then(() =>
      attempt(problem, async () => {
        item.value = await api<T>('GET', `${section.path}/${encodeURIComponent(id)}`);
      }),
    );
    loads.current = loading.catch(() => {});
    return (await loading)?.status !== 404;
  };
  useSignalEffect(() => {
    const { ids } = news.value;
    const shown = item.peek();
    if (ids === null || shown === null || isOutdated(section, shown, ids)) void load();
  });
  const close = () => goTo(section.name, id);
  const changed = async () => {
    forgetNames();
    close();
    const exists = await load();
    onChange(exists);
    if (!exists) goTo(section.name);
  };
  const found = item.value;
  const name = found ? section.nameOf(found) : id;
  useTitle(pageTitle(`${name} – ${section.title}`));
  return (
    <section aria-labelledby="item">
      <a class="back" href={linkTo(section.name)}>
        {section.title}
      </a>
      <div class="section-head">
        <Heading text={name} />
        {found && <Actions section={section} item={found} />}
      </div>
      {problem.value && <ProblemNotice title="It could not be loaded" problem={problem.value} />}
      {problem.value?.status === 404 && (
        <p class="hint">Somebody has deleted it, or it went offline. Go back to the list.</p>
      )}
      {!found && !problem.value && <p class="with-spinner">Loading…</p>}
      {found && <FactList facts={section.facts(found)} />}
      {found && section.more?.(found, () => void load())}
      {found &&
        section
          .actions(found)
          .find(({ name }) => name === route.value[2])
          ?.dialog(close, changed)}
    </section>
  );
}

/** Takes the focus, so that screen readers say where one is. */
function Heading({ text }: { text: string }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), []);
  return (
    <h2 id="item" ref={heading} tabindex={-1}>
      {text}
    </h2>
  );
}

function Actions<T extends Item>({ section, item }: { section: Section<T>; item: T }): JSX.Element {
  const actions = section.actions(item).filter(({ isPlaced = false }) => !isPlaced);
  const history = section.historyOf?.(item) ?? null;
  return (
    <div class="actions">
      {history !== null && <ButtonLink href={history}>History</ButtonLink>}
      {actions.map(({ name, label }) => (
        <ButtonLink key={name} href={linkTo(section.name, item.id, name)}>
          {label}
        </ButtonLink>
      ))}
    </div>
  );
}

/** Members of an item with their names. */
function FactList({ facts }: { facts: readonly Fact[] }): JSX.Element {
  return (
    <dl class="card facts">
      {facts.map(({ label, value }) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
