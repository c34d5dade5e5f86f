/** Fences an operator that does not lead any more: nothing that it still asks for is sent. */
import { type Api, ApiError } from './api.js';

export interface Fence {
  api: Api;
  /** Refuses every call from now on. Requests that were sent before may still be carried out. */
  shut(): void;
}

export function fenced(api: Api): Fence {
  let open = true;
  const through = (): Api => {
    if (open) return api;
    throw new ApiError(0, 'Deposed', 'another operator may lead now');
  };
  return {
    api: {
      list: async (...args) => through().list(...args),
      watch: (...args) => through().watch(...args),
      get: async (...args) => through().get(...args),
      create: async (...args) => through().create(...args),
      replace: async (...args) => through().replace(...args),
      patchStatus: async (...args) => through().patchStatus(...args),
      apply: async (...args) => through().apply(...args),
      delete: async (...args) => through().delete(...args),
    },
    shut() {
      open = false;
    },
  };
}
