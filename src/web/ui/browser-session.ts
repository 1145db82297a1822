import { type ReadonlySignal, signal } from '@preact/signals';
import { ApiProblem, call } from './api.ts';

/** The fragment of a one-time link. */
const CODE = /^#code=([\w-]+)$/;
const RETRY_MS = 2_000;

/**
 * The session of this browser with the server of the page. A secret is sent once and kept nowhere: from then on, a cookie that
 * scripts cannot read stands for it.
 */
export class BrowserSession<Access extends { access: string }> {
  readonly #access = signal<Access | null>(null);
  readonly #problem = signal<ApiProblem | null>(null);
  #isSigningOut = false;
  readonly #isEnded = signal(false);

  /**
   * @param path of this session: GET says what the browser may do, POST signs in, DELETE signs out
   * @param allPath of the sessions of all browsers: DELETE ends them
   */
  constructor(
    private readonly path: string,
    private readonly allPath: string,
  ) {}

  /** What this browser may do; null until the server has answered. */
  get access(): ReadonlySignal<Access | null> {
    return this.#access;
  }

  /** Whether the session ended while the page was in use, and not by signing out here. */
  get isEnded(): ReadonlySignal<boolean> {
    return this.#isEnded;
  }

  /**
   * Asks whether this browser may call the API: it may have been signed out, here or elsewhere. After the end of its session, it
   * answers when somebody has signed in again.
   */
  async mayCall(): Promise<boolean> {
    await this.refresh();
    await this.#readmission();
    const access = this.#access.value?.access;
    return access === 'open' || access === 'signed-in';
  }

  /** Resolves when the browser is signed in again after its session has ended, or signed out; at once if it has not ended. */
  #readmission(): Promise<void> {
    return new Promise((resolve) => {
      const stop = this.#isEnded.subscribe((isEnded) => {
        if (isEnded) return;
        resolve();
        // The first call comes before `stop` is known.
        queueMicrotask(() => stop());
      });
    });
  }

  /** Why the last attempt to sign in failed. */
  get problem(): ReadonlySignal<ApiProblem | null> {
    return this.#problem;
  }

  /** Signs in by the link that opened the page, if one did, and finds out what the browser may do. */
  async open(): Promise<void> {
    window.addEventListener('hashchange', ({ oldURL }) => void this.#signInByLink(new URL(oldURL).hash));
    // The page preloads the answer, which a link makes outdated: it is taken before one is used.
    const first = this.#ask();
    await this.#signInByLink('');
    const known = await first;
    if (known !== null && this.#access.value === null) this.#access.value = known;
    while (this.#access.value === null && !(await this.refresh()))
      await new Promise((resolve) => window.setTimeout(resolve, RETRY_MS));
  }

  /** @returns whether the server has answered */
  async refresh(): Promise<boolean> {
    const next = await this.#ask();
    if (next === null) return false;
    const isSignedIn = next.access === 'signed-in';
    const wasSignedIn = this.#access.value?.access === 'signed-in' && !this.#isSigningOut;
    this.#isEnded.value = !isSignedIn && (this.#isEnded.value || wasSignedIn);
    this.#access.value = next;
    return true;
  }

  /** Null without an answer. */
  #ask(): Promise<Access | null> {
    return call<Access>('GET', this.path).catch(() => null);
  }

  /** @param proof the body that the server asks for */
  async signIn(proof: object): Promise<void> {
    this.#problem.value = null;
    try {
      await call('POST', this.path, proof);
      await this.refresh();
    } catch (error) {
      if (!(error instanceof ApiProblem)) throw error;
      // Where no one needs to sign in, a link that does it is of no consequence.
      if (error.status !== 405) this.#problem.value = error;
    }
  }

  /** @param everywhere ends the sessions of other browsers too */
  async signOut(everywhere: boolean): Promise<void> {
    // It does not end unexpectedly. Live connections are cut before the answer comes, and then ask.
    this.#isSigningOut = true;
    await call('DELETE', everywhere ? this.allPath : this.path).catch(() => {});
    const before = this.#access.value;
    this.#access.value = null;
    if (!(await this.refresh())) this.#access.value = before;
    this.#isSigningOut = false;
  }

  /** @param before the fragment where the page was */
  async #signInByLink(before: string): Promise<void> {
    const code = CODE.exec(window.location.hash)?.[1];
    if (code === undefined) return;
    // Out of the address and the history at once, so that nobody reads it there.
    window.history.replaceState(null, '', window.location.pathname + (before.startsWith('#/') ? before : ''));
    await this.signIn({ code });
    // A phone that changes networks: nobody could repeat it, as the code is gone from the address.
    while (this.#problem.value?.status === 0) {
      await new Promise((resolve) => window.setTimeout(resolve, RETRY_MS));
      await this.signIn({ code });
    }
  }
}
