import type { Missing } from '../support/requirements.ts';
import type { Lab } from './lab.ts';

/** One test of a client's own suite, or one step that we make the client take. */
export interface Case {
  name: string;
  status: 'passed' | 'failed';
  /** What it printed; only with failures. */
  output: string;
}

/** A client that others wrote, tried unmodified against the gateway. */
export interface Client {
  /** With its version. */
  title: string;
  /** What is tried, in a few words. */
  what: string;
  /** Toolchain and registries. */
  needs: string;
  missing(): Missing;
  /** Fetches everything into an empty folder. The only step with a network. */
  fetch(folder: string): void | Promise<void>;
  /** Further settings of the gateway. */
  gateway?(folder: string): Record<string, string>;
  /** Tries the client. Its only network is the lab. */
  run(lab: Lab, folder: string): Promise<Case[]>;
  /** Why a case fails although nothing is broken, by its name. */
  expected: Readonly<Record<string, string>>;
}

/** Why tests of OAuth fail. */
export const NO_OAUTH =
  'the option names no client at the provider, so it is refused by name; the policy action oauth does';
