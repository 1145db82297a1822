import type { RequestHandler } from 'express';
import type { Inspector, InspectorOptions } from '../../inspector/inspector.ts';
import type { InspectionApi, InspectionOptions } from './inspection-router.ts';

interface Loaded {
  inspector: Inspector;
  api: InspectionApi;
}

const PATHS = /^\/tunnels\/[^/]+\/(?:inspection|requests)(?:[./]|$)/i;

/** The traffic inspector, loaded by the first call of its API: most devices never need its code. */
export class LazyInspection {
  #loading: Promise<Loaded> | null = null;
  #loaded: Loaded | null = null;

  constructor(
    private readonly options: Omit<InspectionOptions, 'inspector'> & {
      observe: InspectorOptions['observe'];
      watchRequests: NonNullable<InspectorOptions['watchRequests']>;
    },
  ) {}

  readonly router: RequestHandler = async (req, res, next) => {
    if (!PATHS.test(req.path)) return next();
    this.#loading ??= this.#load();
    const { api } = await this.#loading;
    api.router(req, res, next);
  };

  stop(): void {
    this.#loaded?.api.stop();
  }

  forget(tunnelId: string): void {
    this.#loaded?.inspector.forget(tunnelId);
  }

  stopInspecting(): void {
    this.#loaded?.inspector.stop();
  }

  async #load(): Promise<Loaded> {
    try {
      const { Inspector } = await import('../../inspector/inspector.ts');
      const { InspectionApi } = await import('./inspection-router.ts');
      const inspector = new Inspector(this.options);
      this.#loaded = { inspector, api: new InspectionApi({ ...this.options, inspector }) };
      return this.#loaded;
    } catch (error) {
      // Files of the program may be missing during an update.
      this.#loading = null;
      throw error;
    }
  }
}
