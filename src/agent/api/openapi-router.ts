import { Router } from 'express';
import { methodNotAllowed } from './error-handler.ts';
import { noQuery } from './parse-input.ts';

export function openApiRouter(version: string): Router {
  const router = Router();
  router
    .route('/openapi.json')
    .get(noQuery, async (_req, res) => {
      // Loaded on demand: few agents are ever asked.
      const { openApiDocument } = await import('./openapi.ts');
      res.json(openApiDocument(version));
    })
    .all(methodNotAllowed('GET, HEAD'));
  return router;
}
