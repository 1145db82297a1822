import { type ReadonlySignal, signal, untracked } from '@preact/signals';
import { ApiProblem } from '../ui/api.ts';
import { attempt } from '../ui/submission.ts';
import type { Option } from './form.tsx';
import type { Item, Section } from './section.ts';
import { api, type News } from './session.ts';

/** Loading another page, knowing of more, or at the end. */
export type ListState = 'loading' | 'more' | 'complete';

interface Page {
  next_page_uri: string | null;
  [listKey: string]: unknown;
}

/** What a list needs to know of its section. */
type Listed<T extends Item> = Pick<Section<T>, 'path' | 'listKey' | 'changesWith'>;

/** So many changed items are loaded one by one; if there are more, the list is loaded again. */
const MOST_SINGLE = 5;

/** A list of the management API, loaded page by page. */
export class PagedList<T extends Item> {
  readonly #items = signal<readonly T[]>([]);
  readonly #state = signal<ListState>('loading');
  readonly #problem = signal<ApiProblem | null>(null);
  /** The query of the next page. */
  #next: string | null;
  #running: Promise<void> = Promise.resolve();
  #atLeast = 0;
  /** What has changed since it was loaded. */
  #outdated: News['ids'] = [];
  readonly #refresh = paced(async () => {
    const ids = this.#outdated && this.#idsToLoad(this.#outdated);
    this.#outdated = [];
    if (ids !== null) return this.#loadSingle(ids);
    await this.reload();
    await this.loadUpTo(this.#atLeast);
  });

  /** What somebody types waits for nothing but the answer to what was typed before. */
  readonly #choose = paced(() => this.#load(0), 0);

  /** @param filter the query that limits the list */
  constructor(
    private readonly section: Listed<T>,
    private filter = new URLSearchParams(),
  ) {
    this.#next = firstPage(filter);
  }

  /** Newest first. */
  get items(): ReadonlySignal<readonly T[]> {
    return this.#items;
  }

  get state(): ReadonlySignal<ListState> {
    return this.#state;
  }

  get problem(): ReadonlySignal<ApiProblem | null> {
    return this.#problem;
  }

  /**
   * Reloads soon.
   *
   * @param atLeast how many items to load, if there are as many
   */
  refresh(atLeast = 0): Promise<void> {
    this.#atLeast = atLeast;
    return this.update({ ids: null });
  }

  /** Loads what has changed soon: single items if they are few, otherwise as {@link refresh}. */
  update({ ids }: News): Promise<void> {
    this.#outdated = ids && this.#outdated && [...this.#outdated, ...ids];
    // Effects that call it depend on what they react to, not on the list.
    return untracked(() => this.#refresh());
  }

  /** Loads all pages that were loaded before again, at least the first. */
  reload(): Promise<void> {
    return this.#load(this.#items.value.length);
  }

  /** Loads the first items again, at least one, or all. */
  #load(atLeast: number): Promise<void> {
    // What is shown stays, and so does the state.
    const isFirst = this.#state.value === 'loading';
    return this.#oneByOne(async () => {
      const { filter } = this;
      const items: T[] = [];
      let next: string | null = firstPage(filter);
      do {
        const page: { items: T[]; next: string | null } = await this.#page(next);
        // Another choice loads next.
        if (filter !== this.filter) return;
        items.push(...page.items);
        next = page.next;
        // A search may go through many pages before it finds something.
        if (next !== null && items.length === 0) this.#state.value = 'loading';
      } while (next !== null && items.length < Math.max(atLeast, 1));
      this.#items.value = items;
      this.#next = next;
    }, isFirst);
  }

  /** Limits or sorts the list otherwise, and shows its first items: at once, while the list is not loading for another choice. */
  limitTo(filter: URLSearchParams): Promise<void> {
    this.filter = filter;
    return untracked(() => this.#choose());
  }

  /** Takes out an item that was deleted. */
  forget(id: string): void {
    this.#items.value = this.#items.value.filter((item) => item.id !== id);
  }

  /** The items to load because of changes; null: all. */
  #idsToLoad(changed: readonly string[]): readonly string[] | null {
    const { section } = this;
    const items = this.#items.value;
    const oldest = items.at(-1)?.id;
    // Which of them a filter lets through, the API knows.
    if (oldest === undefined || this.filter.size > 0) return null;
    const shown = items.filter((item) => isOutdated(section, item, changed)).map(({ id }) => id);
    const own = changed.filter((id) => prefixOf(id) === prefixOf(oldest));
    if (section.changesWith === undefined && own.length < changed.length) return null;
    // Further pages bring older ones.
    const ids = new Set([...shown, ...own.filter((id) => this.#next === null || id > oldest)]);
    return ids.size > MOST_SINGLE ? null : [...ids];
  }

  #loadSingle(ids: readonly string[]): Promise<void> {
    return this.#oneByOne(async () => {
      const found = await Promise.all(ids.map((id) => this.#item(id)));
      const others = this.#items.value.filter(({ id }) => !ids.includes(id));
      const items = [...others, ...found.filter((item) => item !== null)];
      this.#items.value = items.sort((a, b) => (a.id < b.id ? 1 : -1));
    }, false);
  }

  /** Null when it does not exist. */
  async #item(id: string): Promise<T | null> {
    try {
      return await api<T>('GET', `${this.section.path}/${id}`);
    } catch (error) {
      if (error instanceof ApiProblem && error.status === 404) return null;
      throw error;
    }
  }

  loadMore(): Promise<void> {
    return this.#oneByOne(() => this.#append());
  }

  /** Loads further pages until it has so many items, or all. */
  loadUpTo(count: number): Promise<void> {
    if (this.#state.value === 'complete') return this.#running;
    return this.#oneByOne(async () => {
      while (this.#next !== null && this.#items.value.length < count) await this.#append();
    });
  }

  async #append(): Promise<void> {
    const { filter } = this;
    let found = 0;
    while (this.#next !== null && found === 0) {
      const { items, next } = await this.#page(this.#next);
      if (filter !== this.filter) return;
      this.#items.value = [...this.#items.value, ...items];
      this.#next = next;
      found = items.length;
    }
  }

  async #page(query: string): Promise<{ items: T[]; next: string | null }> {
    const page = await api<Page>('GET', this.section.path + query);
    const next = page.next_page_uri === null ? null : new URL(page.next_page_uri).search;
    return { items: page[this.section.listKey] as T[], next };
  }

  /** Two loads at a time would mix their pages. */
  #oneByOne(load: () => Promise<void>, isShown = true): Promise<void> {
    // The caller of that load has its error.
    const before = this.#running.catch(() => {});
    this.#running = before.then(async () => {
      if (isShown) this.#state.value = 'loading';
      this.#problem.value = null;
      try {
        await attempt(this.#problem, load);
      } finally {
        this.#state.value = this.#next === null ? 'complete' : 'more';
      }
    });
    return this.#running;
  }
}

function firstPage(filter: URLSearchParams): string {
  return filter.size === 0 ? '' : `?${filter}`;
}

/** A field offers so many items at most. */
const MOST = 1_000;

/**
 * The items of a list that a field offers.
 *
 * @throws {ApiProblem}
 */
export async function loadItems<T extends Item>(section: Listed<T>): Promise<readonly T[]> {
  const list = new PagedList<T>(section);
  await list.loadUpTo(MOST);
  if (list.problem.value) throw list.problem.value;
  return list.items.value;
}

/** What a field offers for the items of a section. @throws {ApiProblem} */
export async function loadOptions<T extends Item>(
  section: Pick<Section<T>, 'path' | 'listKey' | 'nameOf'>,
  isOffered: (item: T) => boolean = () => true,
): Promise<readonly Option[]> {
  const items = await loadItems<T>(section);
  return items.filter(isOffered).map((item) => ({ value: item.id, label: section.nameOf(item), hint: item.id }));
}

/** Whether what is shown of an item may have changed. */
export function isOutdated<T extends Item>(
  { changesWith }: Pick<Section<T>, 'changesWith'>,
  item: T,
  changed: readonly string[],
): boolean {
  const further = changesWith?.(item);
  return changed.some((id) => id === item.id || (further ? further.includes(id) : prefixOf(id) !== prefixOf(item.id)));
}

/** The resource of an id: `ep` of `ep_2b…`. */
const prefixOf = (id: string): string => id.slice(0, id.indexOf('_'));

const PAUSE_FACTOR = 5;

/**
 * Work that runs soon after each call, once at a time. What is asked for all the time runs again and again, with pauses that are
 * longer than it took, so that it costs the gateway little.
 *
 * @param pauseFactor how many times longer
 */
export function paced(work: () => Promise<unknown>, pauseFactor = PAUSE_FACTOR): () => Promise<void> {
  let state: 'idle' | 'running' | 'again' = 'idle';
  return async () => {
    if (state !== 'idle') {
      state = 'again';
      return;
    }
    try {
      do {
        state = 'running';
        const began = performance.now();
        await work();
        const pause = pauseFactor * (performance.now() - began);
        await new Promise((resolve) => window.setTimeout(resolve, pause));
      } while (isAsked());
    } finally {
      state = 'idle';
    }
  };

  /** Other calls change it while one waits. */
  function isAsked(): boolean {
    return state === 'again';
  }
}
