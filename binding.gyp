{
  "targets": [
    {
      "target_name": "kintsugi",
      "sources": ["<!@(node native/sources.mjs addon)"],
      "include_dirs": ["native", "<!(node -p \"require('node-addon-api').include_dir\")"],
      "defines": ["NAPI_VERSION=8", "NAPI_DISABLE_CPP_EXCEPTIONS", "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS"],
      "cflags_cc": ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-exceptions", "-Wall", "-Wextra", "-Werror=switch"],
      "cflags_cc!": ["-std=gnu++17", "-std=gnu++14"],
      "xcode_settings": {
        "CLANG_CXX_LANGUAGE_STANDARD": "c++20",
        "OTHER_CPLUSPLUSFLAGS": ["-O3", "-ffp-contract=off"]
      }
    }
  ]
}
